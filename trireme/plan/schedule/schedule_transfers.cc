#include "trireme/plan/schedule/schedule_transfers.h"

#include <utility>

#include "trireme/plan/schedule/schedule_walk.h"

namespace trireme::inline v0::plan {

Schedule with_transfers(Schedule schedule) {
  if (has_transfers(schedule)) return schedule;
  const auto rank_of = [&](int stage) {
    return schedule.rank_of_stage[static_cast<std::size_t>(stage)];
  };
  for (auto& actions : schedule.order) {
    std::vector<Action> all;
    for (const Action& action : actions) {
      const int rank = rank_of(action.stage);
      for (const Value& value : needs_of(action, schedule, false)) {
        if (rank_of(value.stage) == rank) continue;
        all.push_back({value.gradient ? ActionKind::RecvGradient : ActionKind::RecvActivation,
                       reader_of(value), value.microbatch});
      }
      all.push_back(action);
      for (const Value& value : results_of(action, schedule, false)) {
        if (rank_of(reader_of(value)) == rank) continue;
        all.push_back({value.gradient ? ActionKind::SendGradient : ActionKind::SendActivation,
                       value.stage, value.microbatch});
      }
    }
    actions = std::move(all);
  }
  return schedule;
}

Schedule with_recompute(Schedule schedule) {
  for (auto& actions : schedule.order) {
    std::vector<Action> all;
    for (const Action& action : actions) {
      each_pass(action, [&](const Action& pass) {
        if (goes_backward(pass.kind))
          all.push_back({ActionKind::Recompute, pass.stage, pass.microbatch});
      });
      all.push_back(action);
    }
    actions = std::move(all);
  }
  return schedule;
}

}  // namespace trireme::inline v0::plan
