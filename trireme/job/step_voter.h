// StepVoter: what a Checkpointer asks a component whose steps end with a vote of all ranks
// (Strategy, DataParallel). The answers come from the vote, so they are equal on all ranks.
#pragma once

#include <cstdint>
#include <optional>

namespace trireme::inline v0 {

class StepVoter {
 public:
  virtual ~StepVoter() = default;
  /// 130 or 143 if the last step's vote told all ranks that the job should stop; otherwise 0.
  virtual int stop_signal() const noexcept = 0;
  /// False if some rank does not return from step() between the last step and the next one, because
  /// it has no samples in one of them (job/input_plan.h). A checkpoint then waits for the next
  /// step.
  virtual bool all_ranks_return() const = 0;
  /// Steps that have ended since this object was made: the state is that after them. The last one may
  /// have ended although step() threw, because a rank was lost after the update. nullopt: the state
  /// is that of no step, because a rank was lost between an update and the exchange of weights, or
  /// before servers had it.
  virtual std::optional<std::int64_t> steps_ended() const = 0;
};

}  // namespace trireme::inline v0
