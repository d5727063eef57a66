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
      const int back_stage =
          action.kind == ActionKind::ForwardBackward ? action.backward_stage : action.stage;
      const int rank = rank_of(action.stage);
      for (const Value& value : needs_of(action, schedule, false)) {
        if (rank_of(value.stage) == rank) continue;
        all.push_back({value.gradient ? ActionKind::RecvGradient : ActionKind::RecvActivation,
                       value.gradient ? back_stage : action.stage, value.microbatch});
      }
      all.push_back(action);
      for (const Value& value : results_of(action, schedule, false)) {
        if (rank_of(value.gradient ? value.stage - 1 : value.stage + 1) == rank) continue;
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
      if (action.kind == ActionKind::ForwardBackward) {
        all.push_back({ActionKind::Recompute, action.backward_stage, action.backward_microbatch});
      } else if (goes_backward(action.kind)) {
        all.push_back({ActionKind::Recompute, action.stage, action.microbatch});
      }
      all.push_back(action);
    }
    actions = std::move(all);
  }
  return schedule;
}

}  // namespace trireme::inline v0::plan
