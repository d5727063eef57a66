// Compressor: sends a bucket's gradients in fewer bytes than fp32. Chosen by `comm.compression`.
// Any but none ends the guarantee of equal bits on every layout (docs/numerics.md), but weights
// stay equal on all ranks: every rank computes the sum from the same received bits.
//
// A lossy one keeps the part that it does not send in a residual on its rank, which is added to the
// next step's gradient (error feedback: Seide et al. 2014; Karimireddy et al. 2019).
// Residuals are not part of a checkpoint: a resumed run starts with none.
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
#include <vector>

#include "trireme/base/buffer.h"
#include "trireme/comm/communicator.h"

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
  virtual void launch(std::size_t bucket, at::Tensor local) = 0;
  /// Every launched tensor then holds the sum over ranks, with the same bits on all of them.
  void finish();
  /// The step was refused: forgets what would have been added to the next one.
  virtual void drop() = 0;
  /// Bytes that this rank has passed to collectives so far; fp32 would be 4 per gradient.
  std::int64_t payload_bytes() const { return sent_; }

 protected:
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
};

/// spec: "none" (returns null, as does a group of one), "bf16", "f16", "topk:R" and "randomk:R" (0
/// < R <= 1, the share of elements that is sent), "powersgd:RANK" or "powersgd:RANK,STEPS" (the
/// first STEPS uncompressed, 1,000 by default as in PyTorch; again after a resume), "onebit",
/// "auto" (bf16 if it pays on the link, measured now, else none). Collective. ConfigError for
/// anything else.
std::unique_ptr<Compressor> make_compressor(std::string_view spec, comm::Communicator& world,
                                            std::vector<BucketShape> buckets, std::uint64_t seed);
/// ConfigError where make_compressor would refuse `spec`.
void check_compression(std::string_view spec);
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
