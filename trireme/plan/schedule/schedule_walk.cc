#include "trireme/plan/schedule/schedule_walk.h"

#include <algorithm>

namespace trireme::inline v0::plan {
namespace {

// The set of values made so far.
class Values {
 public:
  explicit Values(const Schedule& schedule)
      : microbatches_(static_cast<std::size_t>(schedule.microbatches())),
        there_(2 * schedule.rank_of_stage.size() * microbatches_, 0) {}
  bool has(const Value& value) const { return there_[index(value)] != 0; }
  void add(const Value& value) { there_[index(value)] = 1; }

 private:
  std::size_t index(const Value& value) const {
    return (2u * value.stage + (value.gradient ? 1 : 0)) * microbatches_ + value.microbatch;
  }

  std::size_t microbatches_;
  std::vector<char> there_;
};

}  // namespace

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
  const auto rank = [&](int stage) {
    return schedule.rank_of_stage[static_cast<std::size_t>(stage)];
  };
  // A value from the rank's own other chunk is never sent.
  const auto need = [&](bool gradient, int from, int stage, int microbatch, bool receive) {
    if (from < 0 || from >= schedule.stages()) return;
    if (transfers && rank(from) != rank(stage) && !receive) return;
    needs.push_back({gradient, from, microbatch});
  };
  if (goes_forward(action.kind) || action.kind == ActionKind::RecvActivation) {
    need(false, action.stage - 1, action.stage, action.microbatch,
         action.kind == ActionKind::RecvActivation);
  }
  if (action.kind == ActionKind::ForwardBackward) {
    need(true, action.backward_stage + 1, action.backward_stage, action.backward_microbatch, false);
  } else if (goes_backward(action.kind) || action.kind == ActionKind::RecvGradient) {
    need(true, action.stage + 1, action.stage, action.microbatch,
         action.kind == ActionKind::RecvGradient);
  }
  return needs;
}

std::vector<Value> results_of(const Action& action, const Schedule& schedule, bool transfers) {
  std::vector<Value> results;
  const auto result = [&](bool gradient, int stage, int microbatch, bool send) {
    const int to = gradient ? stage - 1 : stage + 1;
    if (to < 0 || to >= schedule.stages()) return;
    const bool hop =
        schedule.rank_of_stage[static_cast<std::size_t>(to)] != schedule.rank_of_stage[stage];
    if (!transfers || send == hop) results.push_back({gradient, stage, microbatch});
  };
  const bool send =
      action.kind == ActionKind::SendActivation || action.kind == ActionKind::SendGradient;
  if (goes_forward(action.kind) || action.kind == ActionKind::SendActivation) {
    result(false, action.stage, action.microbatch, send);
  }
  if (action.kind == ActionKind::ForwardBackward) {
    result(true, action.backward_stage, action.backward_microbatch, send);
  } else if (goes_backward(action.kind) || action.kind == ActionKind::SendGradient) {
    result(true, action.stage, action.microbatch, send);
  }
  return results;
}

std::vector<Stuck> walk(const Schedule& schedule,
                        const std::function<void(int, std::size_t)>& run) {
  const bool transfers = has_transfers(schedule);
  Values values(schedule);
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
                                          [&](const Value& value) { return !values.has(value); });
        if (missing != needs.end()) {
          stuck.push_back({static_cast<int>(rank), next[rank], *missing});
          break;
        }
        run(static_cast<int>(rank), next[rank]);
        for (const Value& value : results_of(action, schedule, transfers)) values.add(value);
      }
    }
  }
  return stuck;
}

}  // namespace trireme::inline v0::plan
