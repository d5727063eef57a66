// JobInput: connects the input and the strategies of a job. A strategy says which micro-batches
// each rank computes, and the Sampler what each coming step() contains.
//
// Several DataParallels may train in one loop, such as a generator and its discriminator: each is
// an InputReader. The first step() in an iteration of the loop takes a micro-batch from the
// Sampler's plan; those of the others belong to the same micro-batch. Thread safe.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "trireme/job/input_plan.h"
#include "trireme/kernel/assignment.h"

namespace trireme::inline v0 {

class InputReader;

class JobInput {
 public:
  /// The Sampler's plan, for DataParallel; null without a Sampler.
  void set_plan(std::shared_ptr<InputPlan> plan);
  std::shared_ptr<InputPlan> plan() const { return get(plan_); }
  /// The Sampler calls this on the loader's thread, before the first micro-batch of each pass.
  void begin_pass();
  /// The same before each micro-batch, also the first. On the loop's thread it begins an iteration.
  void begin_micro();
  /// Which micro-batches each rank computes. A strategy sets it, and the input reads it before
  /// every batch. Without a strategy: contiguous shares of the job's ranks, which the Job sets.
  void assign(const kernel::Assignment& assignment) { set(assignment_, std::optional(assignment)); }
  kernel::Assignment assignment() const {
    return get(assignment_).value_or(kernel::contiguous(get(ranks_)));
  }
  void set_ranks(int ranks) { set(ranks_, ranks); }
  /// A strategy holds the result while it lives. The Job must live longer.
  std::shared_ptr<void> attach() const { return attached_; }
  bool has_strategy() const { return attached_.use_count() > 1; }

 private:
  friend class InputReader;

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
  std::optional<kernel::Assignment> assignment_;
  int ranks_ = 1;
  const std::shared_ptr<void> attached_ = std::make_shared<char>();

  void end_iteration();

  // A micro-step that some reader has consumed.
  struct Taken {
    std::int64_t number;
    MicroStep step;
  };
  // Not mutex_, since a plan asks for the assignment.
  mutable std::mutex readers_mutex_;
  std::vector<InputReader*> readers_;  // in the order in which they were made
  std::int64_t last_ = 0;              // number of the micro-step consumed last
  std::vector<Taken> taken_;           // the last one with data, and those after it
  std::atomic<const InputReader*> backward_ = nullptr;  // whose backward() runs
};

/// A DataParallel in the loop.
class InputReader {
 public:
  struct Calls {
    std::function<void()> begin_pass;  // on the loader's thread
    /// The loop's next micro-batch begins. Called for one reader only, on the thread that made it.
    std::function<void()> begin_micro;
    /// Takes part in the batches that come next and have no samples for this rank.
    std::function<void()> take_part;
    /// A micro-batch of another reader ends, on the thread that made this one.
    std::function<void()> other_ends = [] {};
  };
  InputReader(std::shared_ptr<JobInput> input, Calls calls);
  ~InputReader();
  InputReader(const InputReader&) = delete;

  bool has_plan() const { return input_->plan() != nullptr; }
  /// The least number that no other living reader has. Equal on all ranks, also on a late one.
  int number() const noexcept { return number_; }
  /// Whether other DataParallels live, and so may train in this loop.
  bool has_others() const;
  /// The micro-step that this reader's next passes belong to: the loop's present one, or the plan's
  /// next one if the reader has consumed that. nullopt at the end of the epoch, and without a plan.
  std::optional<MicroStep> peek() const;
  void consume();
  /// How many readers have consumed the micro-step that this one consumed last.
  std::uint32_t consumers() const;
  /// After a resume: the micro-steps consumed before are not this loop's.
  void forget();
  /// Tells the other readers that this one's micro-batch ends.
  void end_micro() const;
  /// Ends this rank's part of a batch. Once no other reader is expected to end its own, all take
  /// part in the next batches without samples for this rank, in the order in which they ended
  /// theirs, which all ranks have.
  void end_batch();

  /// While it lives, only this reader takes gradients.
  class Backward {
   public:
    explicit Backward(const InputReader& reader)
        : input_(*reader.input_), before_(input_.backward_.exchange(&reader)) {}
    ~Backward() { input_.backward_ = before_; }
    Backward(const Backward&) = delete;

   private:
    JobInput& input_;
    const InputReader* const before_;
  };
  bool takes_gradients() const {
    const InputReader* const whose = input_->backward_;
    return whose == nullptr || whose == this;
  }

 private:
  friend class JobInput;
  const JobInput::Taken* found() const;

  const std::shared_ptr<JobInput> input_;
  const Calls calls_;
  const std::thread::id thread_ = std::this_thread::get_id();
  int number_ = 0;
  std::int64_t last_ = 0;  // number of the micro-step consumed last
  std::int64_t turn_ = 0;  // among the readers that consumed it
};

}  // namespace trireme::inline v0
