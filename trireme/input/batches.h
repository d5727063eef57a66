// Batches: cuts a dataset into global batches and micro-batches, and gives this rank its share:
// `for (auto& batch : batches(job, data, ...))`. A background thread reads ahead.
//
// The saved position counts batches that next() returned, not those read ahead. One user thread.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "trireme/base/clock.h"
#include "trireme/input/dataset.h"
#include "trireme/tensor/batch.h"
#include "trireme/tensor/state.h"

namespace trireme::inline v0 {

class Job;
class Waiter;
namespace kernel {
struct Assignment;
}

struct BatchesOptions {
  std::int64_t batch = 0;  // samples in a global batch
  std::int64_t micro = 0;  // samples in a micro-batch; divides batch
  std::int64_t steps = 0;  // the range ends after this many global batches in all; 0 = never
  std::uint64_t seed = 1;  // of the order; unused if the dataset is endless
  bool shuffle = true;
  // Batches read ahead, in a thread whose kernels have the job's `kernel_threads`; 0 = read in next().
  int prefetch = 2;
  /// Only batches first, first + every, first + 2 every, ... are read: for one of `every` workers
  /// that train on separate batches. Positions count the batches that are read.
  std::int64_t first = 0, every = 1;
  /// Fields are copied to it while earlier batches are computed. The current stream of the thread
  /// that calls next() waits for the copies.
  Device device = {};
};

/// Returns which micro-batches each rank computes; called by next(). Batches that were read ahead
/// for other shares are read again.
using AssignmentNow = std::function<kernel::Assignment()>;

class Batches final : public Saveable {
 public:
  /// Throws ConfigError if micro does not divide batch, a rank would have no share, first is
  /// negative, or every is not positive. An empty `assignment` means contiguous shares.
  Batches(std::shared_ptr<const Dataset> data, const BatchesOptions& options, int rank, int size,
          std::shared_ptr<Waiter> waiter, AssignmentNow assignment = {});
  Batches(Batches&&) noexcept;
  ~Batches() override;

  /// This rank's share of the next global batch. Waits if it has not been read yet; throws what
  /// Dataset::read threw.
  Batch next();
  /// Global batches returned since the start of the training.
  std::int64_t position() const noexcept;
  /// Makes next() continue with batch number `position`.
  void seek(std::int64_t position);
  /// Total time that next() has waited: `input_seconds`.
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

  /// No tensors. The metadata, which must be equal on all ranks, does not contain `first`, which
  /// workers that train on separate batches each have their own of.
  std::vector<NamedShard> state() override { return {}; }
  std::string metadata() const override;
  /// Throws CheckpointError, with both values, if the data or the options of its order differ.
  void restored(const std::string& metadata) override;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// `job` must outlive the result.
Batches batches(const Job& job, std::shared_ptr<const Dataset> data, const BatchesOptions& options);

/// For Strategy::evaluate: this rank's share of `count` global batches of `batch` samples, spread
/// evenly over a dataset that has an end. The samples are the same on any number of ranks. They
/// come in micro-batches of `micro` samples, assigned to ranks as the job's Strategy does; create
/// the Strategy first. A smaller dataset gives fewer batches. Throws ConfigError if the dataset has
/// no end, or a number is not positive.
std::vector<Batch> fixed_batches(const Job& job, const Dataset& data, std::int64_t batch,
                                 std::int64_t micro, std::int64_t count);

namespace input {

/// fixed_batches() for rank `rank` under the assignment `shares`.
std::vector<Batch> fixed_share(const Dataset& data, std::int64_t batch, std::int64_t micro,
                               std::int64_t count, const kernel::Assignment& shares, int rank);

/// One micro-batch to try a model on, with `micro` samples spread evenly over the dataset.
MicroBatch example_of(const Dataset& data, std::int64_t micro);

}  // namespace input

}  // namespace trireme::inline v0
