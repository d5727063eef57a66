// ParameterSync: who owns which part of the parameters, and when gradients and weights move. Plain
// data parallel, ZeRO, hybrid and the local methods each implement it.
//
// One step: begin(); for every micro-batch begin_micro(), acquire() around each block's work,
// gradient() from autograd's hooks, end_micro(); then finish(), the vote, settle(), the update of
// owned(), publish(). gradient() only enqueues: it never waits and never throws. Not thread safe,
// except that gradient() may be called by any of autograd's threads.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "trireme/base/work.h"
#include "trireme/optim/owned_slice.h"

namespace trireme::inline v0::parallel {

/// A kind of computation of a block on a micro-batch. A pipeline's schedule may split Backward into
/// Input, the gradient of its inputs, and Weight, that of its weights.
enum class Phase : std::uint8_t { Forward, Backward, Input, Weight };
constexpr bool needs_weights(Phase phase) noexcept { return phase != Phase::Weight; }
constexpr bool gives_gradients(Phase phase) noexcept {
  return phase == Phase::Backward || phase == Phase::Weight;
}

/// One block's work on one micro-batch; known from the schedule before the step.
struct Use {
  std::uint32_t block = 0;
  std::uint32_t microbatch = 0;
  Phase phase = Phase::Forward;
  std::uint32_t part = 0;  // in a pipeline: which of this rank's stages has the block
};

/// Parameter number `parameter` of block `block`: a tied parameter has one per block that uses it.
struct ParameterUse {
  std::uint32_t block = 0;
  std::uint32_t parameter = 0;
};

/// A change of a rank's memory under ZeRO-3, reported at once to StrategyContext::on_shard_event;
/// `trireme show zero3` draws these. In order, one at a time: Gather (the gather of a block's whole
/// weights has started), Use (a block's use begins: it waits for its weights, the next block's are
/// requested, it computes), Free (a block's whole weights are freed), Send (a bucket's leaves are
/// being sent to their owners), Fold (this rank's part of a bucket has been added up).
struct ShardEvent {
  enum class Kind : std::uint8_t { Gather, Use, Free, Send, Fold };
  Kind kind = Kind::Use;
  Use use = {};              // Use
  std::uint32_t number = 0;  // the block of Gather and Free, the bucket of Send and Fold
  std::size_t bytes = 0;     // taken by Gather and Send, given back by Free and Fold
};

using OnShardEvent = std::function<void(const ShardEvent&)>;

/// Holds a block's whole parameters in memory while it lives.
class Pin {
 public:
  Pin() = default;
  explicit Pin(std::function<void()> release) : release_(std::move(release)) {}
  Pin(Pin&& other) noexcept : release_(std::exchange(other.release_, nullptr)) {}
  Pin& operator=(Pin&& other) noexcept {
    std::swap(release_, other.release_);
    return *this;
  }
  ~Pin() {
    if (release_) release_();
  }

 private:
  std::function<void()> release_;
};

/// Why this rank refuses the step it is in.
struct Refusal {
  static constexpr int kNotFinite = 21, kMisused = 20;
  int exit_code = kNotFinite;
  std::string reason;
};

/// The operations of a whole step. Implemented by a ParameterSync, and for all pipeline stages of a
/// rank together (pipeline/pipeline_sync.h).
class StepSync {
 public:
  virtual ~StepSync() = default;
  /// Starts a global batch of `total` micro-batches. `order`: the uses of this rank, or those of
  /// the other ranks of its group if it has one micro-batch fewer; may be empty if no use has to
  /// wait. `total` 0: forward passes only, which also end with finish().
  virtual void begin(std::uint32_t total, std::span<const Use> order) = 0;
  /// Starts the remaining reductions. When the Work is done, all sums over ranks are complete. The
  /// Work fails with the communicator's error; refusal() has what this rank itself found wrong.
  virtual Work finish() = 0;
  virtual std::optional<Refusal> refusal() const = 0;
  /// After finish()'s Work and the vote, on the caller's thread: adds the uses of tied parameters,
  /// in block order. The gradients of owned() are final.
  virtual void settle() = 0;
  /// After settle(): the sums of squares of the whole gradient's chunks, in (parameter, chunk)
  /// order (docs/numerics.md); the same bits on every rank. Collective where ranks own parts.
  virtual std::vector<double> chunk_squares() = 0;
  /// The sum of chunk_squares(), added in their order.
  double squared_norm() {
    double sum = 0;
    for (const double square : chunk_squares()) sum += square;
    return sum;
  }
  /// After settle(): the first parameter whose sum holds an infinity or a NaN, the same on every
  /// rank; -1: none. Collective where ranks own parts.
  virtual std::int64_t first_overflow() = 0;
  /// The step was refused on all ranks: forgets what would affect the next one.
  virtual void drop() = 0;
  /// The slices that this rank updates, by ascending parameter, at most one of each.
  virtual std::span<optim::OwnedSlice> owned() = 0;
  /// After the update: all-gather, or mixing.
  virtual Work publish() = 0;
  /// Bytes of the gradient sums that stay between micro-batches.
  virtual std::size_t gradient_bytes() const = 0;
};

class ParameterSync : public StepSync {
 public:
  /// Collective: allocates what a batch of `total` micro-batches takes. begin() calls it; call it
  /// earlier if begin() must not wait, for example because a hook calls it. Not between
  /// begin_micro() and end_micro().
  virtual void reserve(std::uint32_t total) = 0;
  /// The gradients that follow belong to micro-batch `microbatch`, this rank's next one. A leaf of
  /// the sum is gradient x `weight` (the sample count for a mean loss, 1 for a summed one).
  virtual void begin_micro(std::uint32_t microbatch, double weight) = 0;
  /// Waits until the block's parameters are here, and starts to fetch those of the next use.
  virtual Pin acquire(Use use) = 0;
  virtual void gradient(ParameterUse use, std::uint32_t microbatch, at::Tensor leaf) noexcept = 0;
  /// Parameters without a gradient in this micro-batch get a zero leaf.
  virtual void end_micro() = 0;
  /// A pass of the pipeline's order is over. Its missing uses will not come: the pass failed, or
  /// only other ranks of the group have this micro-batch.
  virtual void end_pass(std::uint32_t microbatch, Phase phase) = 0;
};

}  // namespace trireme::inline v0::parallel
