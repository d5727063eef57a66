// Goes through a schedule in an order in which it can run: what the check and the simulator share.
//
// An action runs when those before it on its rank have run and what it needs from other stages is
// there. A Send starts and returns, a Recv waits; a schedule without sends and receives moves its
// values by itself. Pure functions.
#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "trireme/plan/schedule.h"

namespace trireme {
inline namespace v0 {
namespace plan {

/// Outputs of a stage's forward pass, or (gradient) the gradient of its inputs.
struct Value {
  bool gradient = false;
  int stage = 0, microbatch = 0;
};
/// "F1.0", "the gradient from stage 2 ...": the pass that makes it.
std::string text_of(const Value& value);

/// Are sends and receives written down?
bool has_transfers(const Schedule& schedule) noexcept;
/// What `action` waits for; with transfers only receives wait for another rank.
std::vector<Value> needs_of(const Action& action, const Schedule& schedule, bool transfers);
/// What there is for others once `action` has run.
std::vector<Value> results_of(const Action& action, const Schedule& schedule, bool transfers);

/// A rank that cannot go on: what stands at `position` waits for `value`.
struct Stuck {
  int rank = 0;
  std::size_t position = 0;
  Value value;
};

/// Calls run(rank, position) for every action that can run, ranks' orders kept, nothing before what
/// it waits for. Returns those that wait for ever: none if there is no deadlock.
std::vector<Stuck> walk(const Schedule& schedule, const std::function<void(int, std::size_t)>& run);

}  // namespace plan
}  // namespace v0
}  // namespace trireme
