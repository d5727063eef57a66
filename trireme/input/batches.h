// Batches: a dataset as global batches, cut into micro-batches, of which this rank gets its share.
// Read ahead in a background thread. For door (b): `for (auto& batch : batches(job, data, …))`.
//
// Its saved position counts the batches that next() gave out, not those read ahead. One user
// thread.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "trireme/base/clock.h"
#include "trireme/input/dataset.h"
#include "trireme/kernel/assignment.h"
#include "trireme/tensor/batch.h"
#include "trireme/tensor/state.h"

namespace trireme {
inline namespace v0 {

class Job;
class Waiter;

struct BatchesOptions {
  std::int64_t batch = 0;  // samples in a global batch
  std::int64_t micro = 0;  // samples in a micro-batch; divides batch
  std::int64_t steps = 0;  // the range ends after this many global batches in all; 0 = never
  std::uint64_t seed = 1;  // of the order, where the dataset has an end
  bool shuffle = true;
  int prefetch = 2;  // batches read ahead; 0 = read in next()
};

/// Which micro-batches each rank computes, asked before every batch is read.
using AssignmentNow = std::function<kernel::Assignment()>;

class Batches final : public Saveable {
 public:
  /// Throws ConfigError where micro does not divide batch, or a rank would have no share.
  /// `assignment` empty: contiguous shares.
  Batches(std::shared_ptr<const Dataset> data, const BatchesOptions& options, int rank, int size,
          std::shared_ptr<Waiter> waiter, AssignmentNow assignment = {});
  Batches(Batches&&) noexcept;
  ~Batches() override;

  /// This rank's share of the next global batch. Waits where it is not read yet; throws what
  /// Dataset::read threw.
  Batch next();
  /// Global batches given out since the start of the training.
  std::int64_t position() const noexcept;
  /// The next batch is number `position`.
  void seek(std::int64_t position);
  /// How long next() has waited in all: `input_seconds`.
  Duration time_waited() const noexcept;

  /// Input range over next(), from the current position to `steps`.
  class Iterator {
   public:
    Iterator() = default;
    explicit Iterator(Batches* owner) : owner_(owner) { advance(); }
    Batch& operator*() { return batch_; }
    Iterator& operator++() {
      advance();
      return *this;
    }
    bool operator!=(const Iterator& other) const { return owner_ != other.owner_; }

   private:
    void advance();
    Batches* owner_ = nullptr;
    Batch batch_;
  };
  Iterator begin() { return Iterator(this); }
  Iterator end() { return {}; }

  /// No tensors; metadata is {"position", "batch", "seed", "samples"}.
  std::vector<NamedShard> state() override { return {}; }
  std::string metadata() const override;
  /// Throws CheckpointError where batch, seed or the number of samples differ, with both values.
  void restored(const std::string& metadata) override;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// The Job outlives it.
Batches batches(const Job& job, std::shared_ptr<const Dataset> data, const BatchesOptions& options);

/// `count` global batches of `batch` samples, spread evenly over a dataset that has an end: the
/// same samples on any number of ranks, for Strategy::evaluate. This rank's share of them, in
/// micro-batches of `micro` samples, as the job's Strategy deals it out, which is made before.
/// Fewer where the dataset is smaller.
std::vector<Batch> fixed_batches(const Job& job, const Dataset& data, std::int64_t batch,
                                 std::int64_t micro, std::int64_t count);

namespace input {

/// The same for rank `rank` of `shares`.
std::vector<Batch> fixed_share(const Dataset& data, std::int64_t batch, std::int64_t micro,
                               std::int64_t count, const kernel::Assignment& shares, int rank);

/// The first of the samples that fixed_batches() would spread over `micro` batches: one micro-batch
/// to try a model on.
MicroBatch example_of(const Dataset& data, std::int64_t micro);

}  // namespace input

}  // namespace v0
}  // namespace trireme
