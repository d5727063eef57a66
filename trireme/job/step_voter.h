// StepVoter: what a Checkpointer asks of a part whose steps end with a vote of all ranks (Strategy,
// DataParallel). The answers come from the vote, so they are the same on every rank.
#pragma once

namespace trireme {
inline namespace v0 {

class StepVoter {
 public:
  virtual ~StepVoter() = default;
  /// 130 or 143 where all ranks learned in the last step's vote that the job is to stop; else 0.
  virtual int stop_signal() const noexcept = 0;
  /// False where some rank does not return from step() between the last step and the next one,
  /// because it has no share of one of them (job/input_plan.h): a checkpoint waits for the next.
  virtual bool all_ranks_return() const = 0;
};

}  // namespace v0
}  // namespace trireme
