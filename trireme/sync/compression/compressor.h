// Compressor: sends a bucket's gradients in fewer bytes than fp32. Chosen by `comm.compression`.
// Any but none ends the guarantee of equal bits on every layout (docs/numerics.md), but weights
// stay equal on all ranks: every rank computes the sum from the same received bits.
//
// A lossy one keeps the part that it does not send in a residual on its rank, which is added to the
// next step's gradient (error feedback: Seide et al. 2014; Karimireddy et al. 2019).
// Residuals, and all else that the next steps depend on, are in checkpoints (compression_state.h).
//
// launch() is called from backward, in one order on all ranks. finish() is called by the thread
// that runs the step, and may wait. Not thread safe.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "trireme/base/buffer.h"
#include "trireme/comm/communicator.h"
#include "trireme/tensor/state.h"

namespace trireme::inline v0::parallel {

/// The layout of one bucket.
struct BucketShape {
  struct Parameter {
    std::string name;
    std::int64_t offset = 0, count = 0;  // elements
    std::int64_t rows = 1;               // of a matrix: the first dimension; 1 for the others
  };
  std::int64_t count = 0;  // elements, gaps included
  std::vector<Parameter> parts;
  Device device = {};  // of its memory
};

class Compressor {
 public:
  explicit Compressor(comm::Communicator& world) : world_(world) {}
  virtual ~Compressor() = default;
  /// `local`: this rank's sum, fp32 [count] of bucket `bucket`; must stay until finish().
  void launch(std::size_t bucket, at::Tensor local) {
    between_steps_ = false;
    send(bucket, std::move(local));
  }
  /// Every launched tensor then holds the sum over ranks, with the same bits on all of them.
  void finish();
  /// The step was applied.
  void accept() noexcept { between_steps_ = true; }
  /// The step was refused: forgets what would have been added to the next one.
  void drop() {
    forget();
    between_steps_ = true;
  }
  /// The next steps depend on it and on steps(). In the middle of a step it belongs to no step.
  virtual std::vector<NamedShard> state() { return {}; }
  bool between_steps() const noexcept { return between_steps_; }
  /// Steps that have finished, those that were refused included.
  std::int64_t steps() const noexcept { return steps_; }
  /// state() was filled; `steps` as saved with it.
  void restored(std::int64_t steps) {
    steps_ = steps;
    between_steps_ = true;
  }
  const comm::Communicator& world() const noexcept { return world_; }
  /// Bytes that this rank has passed to collectives so far; fp32 would be 4 per gradient.
  std::int64_t payload_bytes() const { return sent_; }

 protected:
  virtual void send(std::size_t bucket, at::Tensor local) = 0;
  virtual void forget() = 0;
  /// finish() waits for `work` and calls `then`, in the order of these calls. A `then` that calls
  /// after() starts a second round, which follows the first one of all buckets.
  void after(Work work, std::function<void()> then) {
    open_.push_back({std::move(work), std::move(then)});
  }
  static std::string label_of(std::size_t bucket) { return "bucket " + std::to_string(bucket); }

  comm::Communicator& world_;
  std::int64_t sent_ = 0;

 private:
  struct Open {
    Work work;
    std::function<void()> then;
  };
  std::vector<Open> open_;
  std::int64_t steps_ = 0;
  bool between_steps_ = true;
};

/// spec: "none" (returns null, as does a group of one), "bf16", "f16", "topk:R" and "randomk:R" (0
/// < R <= 1, the share of elements that is sent), "powersgd:RANK" or "powersgd:RANK,STEPS" (the
/// first STEPS uncompressed, 1,000 by default as in PyTorch), "onebit", "auto" (bf16 if it pays on
/// the link, measured now, else none). Collective. ConfigError for anything else.
std::unique_ptr<Compressor> make_compressor(std::string_view spec, comm::Communicator& world,
                                            std::vector<BucketShape> buckets, std::uint64_t seed);
/// ConfigError where make_compressor would refuse `spec`.
void check_compression(std::string_view spec);
/// The part of `spec` before the colon: "topk".
std::string_view kind_of_compression(std::string_view spec);
/// Whether a compressor of `spec` has a residual, of 4 bytes for each element of the buckets.
bool keeps_residual(std::string_view spec);

// The makers, one file each.
std::unique_ptr<Compressor> make_cast_compressor(comm::Communicator& world, DType wire,
                                                 std::vector<BucketShape> buckets);
std::unique_ptr<Compressor> make_top_k_compressor(comm::Communicator& world, double share,
                                                  std::vector<BucketShape> buckets);
std::unique_ptr<Compressor> make_random_k_compressor(comm::Communicator& world, double share,
                                                     std::uint64_t seed,
                                                     std::vector<BucketShape> buckets);
std::unique_ptr<Compressor> make_one_bit_compressor(comm::Communicator& world,
                                                    std::vector<BucketShape> buckets);
std::unique_ptr<Compressor> make_power_compressor(comm::Communicator& world, int rank,
                                                  std::int64_t exact_steps, std::uint64_t seed,
                                                  std::vector<BucketShape> buckets);

}  // namespace trireme::inline v0::parallel
