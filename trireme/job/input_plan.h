// Connects the input and a strategy through the Job: the strategy says which micro-batches each rank
// computes, the Sampler what each coming step() contains, and DataParallel consumes that. Thread
// safe.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>

#include "trireme/kernel/assignment.h"

namespace trireme::inline v0 {

/// One micro-batch of this rank. If `has_data` is false, the global batch has no samples for this
/// rank, which then takes part in that step from within the previous step().
struct MicroStep {
  std::uint32_t index = 0, total = 0;  // micro-batch number, and the global batch's count
  std::int64_t samples = 0;            // in this micro-batch
  std::int64_t global_samples = 0;     // in the global batch
  std::int64_t batch_number = 0;       // number of global batches since the start
  bool has_data = true;
  bool last_of_batch = false;  // this rank's last of the global batch
  bool last_of_epoch = false;  // no global batch follows in this epoch
};

class InputPlan {
 public:
  virtual ~InputPlan() = default;
  /// Returns this rank's next micro-step that is not consumed yet; nullopt at the end of the epoch.
  virtual std::optional<MicroStep> peek() = 0;
  /// Consumes it. The Sampler saves the consumed position, not the prefetched one.
  virtual void consume() = 0;
};

class JobInput {
 public:
  /// The Sampler's plan, for DataParallel; null without a Sampler.
  void set_plan(std::shared_ptr<InputPlan> plan) { set(plan_, std::move(plan)); }
  std::shared_ptr<InputPlan> plan() const { return get(plan_); }
  /// Sets what begin() calls, in place of an earlier one. Used by DataParallel.
  void set_follower(std::function<void()> follower) { set(follower_, std::move(follower)); }
  /// The Sampler calls it on the loader's thread, before the first micro-batch of each pass.
  void begin() {
    if (const auto follower = get(follower_)) follower();
  }
  /// Which micro-batches each rank computes. A strategy sets it, and the input reads it before
  /// every batch. Without a strategy: contiguous shares of the job's ranks, which the Job sets.
  void assign(const kernel::Assignment& assignment) { set(assignment_, std::optional(assignment)); }
  kernel::Assignment assignment() const {
    return get(assignment_).value_or(kernel::contiguous(get(ranks_)));
  }
  void set_ranks(int ranks) { set(ranks_, ranks); }
  /// A strategy holds it while it lives, which the Job must do longer.
  std::shared_ptr<void> attach() const { return attached_; }
  bool has_strategy() const { return attached_.use_count() > 1; }

 private:
  template <class T>
  void set(T& own, T value) {
    const std::lock_guard lock(mutex_);
    own = std::move(value);
  }
  template <class T>
  T get(const T& own) const {
    const std::lock_guard lock(mutex_);
    return own;
  }

  mutable std::mutex mutex_;
  std::shared_ptr<InputPlan> plan_;
  std::function<void()> follower_;
  std::optional<kernel::Assignment> assignment_;
  int ranks_ = 1;
  const std::shared_ptr<void> attached_ = std::make_shared<char>();
};

}  // namespace trireme::inline v0
