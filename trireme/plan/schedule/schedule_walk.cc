#include "trireme/plan/schedule/schedule_walk.h"

#include <algorithm>

namespace trireme::inline v0::plan {

std::string text_of(const Value& value) {
  const std::string cell = std::to_string(value.stage) + "." + std::to_string(value.microbatch);
  return value.gradient ? "the gradient that stage " + std::to_string(value.stage) +
                              " makes of micro-batch " + std::to_string(value.microbatch)
                        : "F" + cell;
}

bool has_transfers(const Schedule& schedule) noexcept {
  return std::any_of(schedule.order.begin(), schedule.order.end(), [](const auto& actions) {
    return std::any_of(actions.begin(), actions.end(),
                       [](const Action& action) { return is_transfer(action.kind); });
  });
}

std::vector<Value> needs_of(const Action& action, const Schedule& schedule, bool transfers) {
  std::vector<Value> needs;
  each_pass(action, [&](const Action& pass) {
    const bool gradient = goes_backward(pass.kind) || pass.kind == ActionKind::RecvGradient;
    if (!gradient && !goes_forward(pass.kind) && pass.kind != ActionKind::RecvActivation) return;
    const int from = gradient ? pass.stage + 1 : pass.stage - 1;
    if (from < 0 || from >= schedule.stages()) return;
    // A value from the rank's own other chunk is never sent.
    const bool hop = schedule.rank_of_stage[from] != schedule.rank_of_stage[pass.stage];
    if (transfers && hop && !is_transfer(pass.kind)) return;
    needs.push_back({gradient, from, pass.microbatch});
  });
  return needs;
}

std::vector<Value> results_of(const Action& action, const Schedule& schedule, bool transfers) {
  std::vector<Value> results;
  each_pass(action, [&](const Action& pass) {
    const bool gradient = goes_backward(pass.kind) || pass.kind == ActionKind::SendGradient;
    if (!gradient && !goes_forward(pass.kind) && pass.kind != ActionKind::SendActivation) return;
    const Value value{gradient, pass.stage, pass.microbatch};
    const int to = reader_of(value);
    if (to < 0 || to >= schedule.stages()) return;
    const bool hop = schedule.rank_of_stage[to] != schedule.rank_of_stage[pass.stage];
    if (!transfers || is_transfer(pass.kind) == hop) results.push_back(value);
  });
  return results;
}

std::vector<Stuck> walk(const Schedule& schedule,
                        const std::function<void(int, std::size_t)>& run) {
  const bool transfers = has_transfers(schedule);
  PerValue<char> there(schedule);  // 1: made
  std::vector<std::size_t> next(schedule.order.size(), 0);
  std::vector<Stuck> stuck;
  for (bool moved = true; moved;) {
    moved = false;
    stuck.clear();
    for (std::size_t rank = 0; rank < schedule.order.size(); ++rank) {
      const auto& actions = schedule.order[rank];
      for (; next[rank] < actions.size(); ++next[rank], moved = true) {
        const Action& action = actions[next[rank]];
        const auto needs = needs_of(action, schedule, transfers);
        const auto missing = std::find_if(needs.begin(), needs.end(),
                                          [&](const Value& value) { return there[value] == 0; });
        if (missing != needs.end()) {
          stuck.push_back({static_cast<int>(rank), next[rank], *missing});
          break;
        }
        run(static_cast<int>(rank), next[rank]);
        for (const Value& value : results_of(action, schedule, transfers)) there[value] = 1;
      }
    }
  }
  return stuck;
}

}  // namespace trireme::inline v0::plan
