// Walks through a schedule in an order in which it can run. The check and the simulator share it.
//
// An action runs when the actions before it on its rank have run and its inputs from other stages
// are there. A Send starts and returns, a Recv waits; in a schedule without transfers, values move
// by themselves. Pure functions.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "trireme/plan/schedule/schedule.h"

namespace trireme::inline v0::plan {

/// The outputs of a stage's forward pass, or (gradient) the gradient of its inputs.
struct Value {
  bool gradient = false;
  int stage = 0, microbatch = 0;
};
/// "F1.0", "the gradient that stage 2 makes of micro-batch 0".
std::string text_of(const Value& value);
/// The stage that uses it. Not a stage of the schedule if an end of the chain makes the value.
inline int reader_of(const Value& value) noexcept {
  return value.gradient ? value.stage - 1 : value.stage + 1;
}

/// One T for each value of a schedule.
template <class T>
class PerValue {
 public:
  explicit PerValue(const Schedule& schedule)
      : microbatches_(static_cast<std::size_t>(schedule.microbatches())),
        all_(2 * schedule.rank_of_stage.size() * microbatches_) {}
  T& operator[](const Value& value) {
    return all_[(2u * value.stage + (value.gradient ? 1 : 0)) * microbatches_ + value.microbatch];
  }

 private:
  std::size_t microbatches_;
  std::vector<T> all_;
};

/// True if sends and receives are written in the schedule.
bool has_transfers(const Schedule& schedule) noexcept;
/// The values that `action` waits for. With transfers, only receives wait for another rank.
std::vector<Value> needs_of(const Action& action, const Schedule& schedule, bool transfers);
/// The values that others can use once `action` has run.
std::vector<Value> results_of(const Action& action, const Schedule& schedule, bool transfers);

/// A rank that cannot go on: its action at `position` waits for `value`.
struct Stuck {
  int rank = 0;
  std::size_t position = 0;
  Value value;
};

/// Calls run(rank, position) for every action that can run, in each rank's order and after all that
/// it waits for. Returns the ranks that are stuck; empty if there is no deadlock.
std::vector<Stuck> walk(const Schedule& schedule, const std::function<void(int, std::size_t)>& run);

}  // namespace trireme::inline v0::plan
