// Lanes: threads that run whole micro-batches of one rank in parallel (docs/numerics.md,
// `train.lanes`). Each has its own graph and buffers; all share the rank's weights.
//
//     lane 0   | micro-batch 0 ....... | micro-batch 2 .......
//     lane 1   | micro-batch 1 ......... | micro-batch 3 ......
//     caller     0's gradients   1's        2's       3's         always in this order
//
// Timing decides which lane runs a micro-batch, but does not change the result: gradients reach the
// caller's Sink by ascending micro-batch, on the caller's thread, as with one lane. With L lanes,
// micro-batch n starts after the sink has taken micro-batch n - L, so each lane holds the
// activations of one micro-batch and, at most, its gradients.
//
// Not thread safe. An exception in a lane reaches the sink with its micro-batch.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "trireme/base/waiter.h"
#include "trireme/models/block.h"
#include "trireme/placement/stage.h"

namespace trireme::inline v0::parallel {

struct LanesOptions {
  int count = 1;
  memory::RecomputePolicy recompute = {};
  // One store per lane (memory::make_activation_store()); empty: they stay in memory.
  std::string offload_activations = {};
  std::vector<at::Tensor> frozen = {};  // the rank's frozen weights, in the order of the blocks
};

class Lanes {
 public:
  /// Called on the caller's thread: begin(0), gradient(leaf, ...) ..., end(0, ...), begin(1) ...
  struct Sink {
    std::function<void(std::size_t task)> begin;
    std::function<void(std::size_t leaf, at::Tensor gradient)> gradient;
    /// `value`: what `compute` returned; `error`: what it threw, or null.
    std::function<void(std::size_t task, double value, std::exception_ptr error)> end;
  };
  /// Runs forward and backward of task `task` on this lane's blocks; returns the summed loss.
  using Compute = std::function<double(Stage& stage, std::size_t task)>;

  /// Builds `options.count` copies of the model. Their parameters, in the order of `leaves`, share
  /// the storage of `leaves`, and their frozen weights that of `options.frozen`. Each lane's
  /// kernels use the process's number of threads.
  Lanes(const models::Blocks& model, std::uint64_t seed, const std::vector<at::Tensor>& leaves,
        const LanesOptions& options, std::shared_ptr<Waiter> waiter);
  ~Lanes();
  Lanes(const Lanes&) = delete;

  int count() const noexcept;
  /// The copy of the model in lane `lane`; the lane's thread uses it during run().
  const Stage& stage(int lane) const;
  /// Runs tasks 0 ... tasks-1; returns when the sink has taken all of them. An exception of the
  /// sink is rethrown once the lanes are idle.
  void run(std::size_t tasks, const Compute& compute, const Sink& sink);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace trireme::inline v0::parallel
