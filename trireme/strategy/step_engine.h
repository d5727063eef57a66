// StepEngine: a step of training around its forward and backward passes. Strategy runs the passes
// itself; DataParallel gets them from the user's own loop. Both go through this one engine:
//
//     begin()    the sums of a new batch start; ranks compare which batch they are in
//     (passes)   gradients reach the StepSync; losses() and vote() take this rank's results
//     finish()   sums complete -> vote -> settle -> norm, clip -> update -> publish
//
// If a rank refuses, or a sum is not finite, no rank applies the step. finish() then reports it as
// skipped if the guards allow that; else every rank throws StepRefused. Not thread safe, but for
// enter_barrier().
#pragma once

#include <unistd.h>

#include <cstdint>
#include <exception>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "trireme/decentralised/local_sync.h"
#include "trireme/kernel/assignment.h"
#include "trireme/pipeline/stage_runner.h"
#include "trireme/strategy/step_guards.h"
#include "trireme/strategy/strategy.h"
#include "trireme/sync/agreement.h"
#include "trireme/sync/parameter_sync.h"
#include "trireme/sync/scalar_tree.h"
#include "trireme/sync/strategy_context.h"

namespace trireme::inline v0::parallel {

/// The state that a step changes: weights, by an optimizer, and batch statistics.
class StepTarget {
 public:
  virtual ~StepTarget() = default;
  virtual std::string name_of(std::size_t parameter) const = 0;
  /// One per parameter group, at least one.
  virtual std::vector<double> learning_rates() const = 0;
  /// Before the first update: throws ConfigError if ranks would train different models.
  virtual void check_first_gradients() = 0;
  /// Every rank gets the batch statistics of the batch of `total` micro-batches. Collective.
  virtual void gather_statistics(std::uint32_t total) = 0;
  /// Folds them, or this rank's own ones if they were not gathered.
  virtual void fold_statistics() = 0;
  /// Updates what this rank owns by the gradient sums times `scale`.
  virtual void update(double scale) = 0;
  /// A step of this rank's own copy has ended, which may also have mixed the ranks' copies.
  virtual void mixed() = 0;
  /// The step was refused or skipped: forgets its batch statistics.
  virtual void drop() = 0;
};

struct StepParts {
  StepSync& sync;
  StepTarget& target;
  StepGuards& guards;
  const kernel::Assignment& assignment;   // its weights change between steps only
  int data_rank = 0;                      // in the assignment
  comm::Communicator* loss_ranks;         // ranks that add losses; null: this rank has none
  StageRunner* runner = nullptr;          // null: the user's loop runs the passes
  LocalSync* local = nullptr;             // `sync`, if ranks train separate copies
  bool counts_items = true;               // false: another rank of the layer counts them
  std::function<Duration()> time_waited;  // this rank, on communication, in all its groups
  /// Whether ranks must be in the same batch before the passes begin, because they wait for others
  /// in the middle of a pass. Else the barrier comes before the first bucket.
  enum class Barrier : std::uint8_t { WithBucket, Early, EarlyAndWait } barrier;
  /// For an elastic job whose ranks hold parts of the model: a barrier before the update. Ranks of
  /// one copy of the model communicate after the vote, too. If one of them is lost there, no copy
  /// may be a step ahead, since the ranks that go on may have parts of different copies.
  bool meets_before_update = false;
  double clip = 0;
};

class StepEngine {
 public:
  /// `env` and what `parts` refers to outlive it.
  StepEngine(const StrategyContext& env, StepParts parts);
  /// Announces to the other ranks that this one's loop has ended, unless an error ends it.
  ~StepEngine();
  StepEngine(const StepEngine&) = delete;

  /// `order`: as StepSync::begin().
  void begin(std::int64_t step, std::uint32_t total, std::span<const Use> order);
  /// The entry barrier of the step, for ParameterSyncs that enter it with their first bucket.
  Work enter_barrier();
  ScalarTree& losses() { return *losses_; }
  LocalVote& vote() { return vote_; }
  StepResult finish();

  /// Runs a user's call. After a StepRefused the ranks may go on; any other exception means that
  /// this rank's loop ends.
  template <class Body>
  auto guarded(Body&& body) {
    try {
      return std::forward<Body>(body)();
    } catch (const StepRefused&) {
      throw;
    } catch (...) {
      failed_ = true;
      parts_.target.drop();  // so that the state is that after the last step that has ended
      throw;
    }
  }
  /// This rank's loop ends with an error that the other ranks know.
  void fail() { failed_ = true; }
  /// StepResult::stop_signal of the last step, or a signal that take_stop() got since.
  int stop_signal() const noexcept { return stop_signal_; }
  /// The ranks have agreed on this stop signal.
  void take_stop(int signal);
  std::int64_t step() const noexcept { return step_; }
  /// StepVoter::steps_ended().
  std::optional<std::int64_t> steps_ended() const noexcept {
    return updating_ ? std::nullopt : std::optional(ended_);
  }
  /// Each rank's times of the last step.
  std::span<const RankTime> times() const noexcept { return times_; }

 private:
  bool local() const { return parts_.local != nullptr && parts_.local->local(); }
  RankTime measure() const;
  Verdict agree();
  void require_training(const Verdict& verdict, double loss) const;
  void settle_own();
  void apply(StepResult& result);
  void apply_own(StepResult& result, double all_squares);
  void update(double scale);
  void drop();

  const StrategyContext& env_;
  StepParts parts_;
  std::int64_t step_ = 0;
  std::uint32_t total_ = 0;
  TimePoint start_;
  Duration waited_{};
  TimePoint voted_{};  // end of the last vote; zero before the first
  Duration waited_at_vote_{};
  std::vector<RankTime> times_;
  Work entered_;
  std::optional<ScalarTree> losses_;
  LocalVote vote_;
  bool checked_ = false;  // check_first_gradients() was called
  int stop_signal_ = 0;
  std::int64_t begun_ = 0, ended_ = 0;  // steps
  bool updating_ = false;
  bool failed_ = false;
  int exceptions_ = std::uncaught_exceptions();
  const int process_ = getpid();
};

}  // namespace trireme::inline v0::parallel
