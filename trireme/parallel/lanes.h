// Lanes: threads that each run whole micro-batches of one rank side by side (NUMERICS.md,
// `train.lanes`), each with a graph and buffers of its own over the rank's one set of weights.
//
//     lane 0   | micro-batch 0 ....... | micro-batch 2 .......
//     lane 1   | micro-batch 1 ......... | micro-batch 3 ......
//     caller     0's gradients   1's        2's       3's         always in this order
//
// Which lane runs a micro-batch depends on time; what comes of it does not: gradients reach the
// caller's Sink by ascending micro-batch, on the caller's thread, as they would with one lane. A
// micro-batch starts when the one that many places before it has been taken, so each lane holds one
// micro-batch's activations and, at most, its gradients.
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
#include "trireme/parallel/pipeline/stage.h"

namespace trireme {
inline namespace v0 {
namespace parallel {

struct LanesOptions {
  int count = 1;
  memory::RecomputePolicy recompute = {};
  std::string offload_activations = {};  // a folder, for a file of each lane; empty: in memory
};

class Lanes {
 public:
  /// Called by the caller's thread, in order: begin(0), gradient(leaf, …) …, end(0, …), begin(1) …
  struct Sink {
    std::function<void(std::size_t task)> begin;
    std::function<void(std::size_t leaf, at::Tensor gradient)> gradient;
    /// What `compute` returned, or what it threw.
    std::function<void(std::size_t task, double value, std::exception_ptr error)> end;
  };
  /// Forward and backward of task number `task` on this lane's blocks; the summed loss.
  using Compute = std::function<double(Stage& stage, std::size_t task)>;

  /// Builds `options.count` copies of the model; their parameters, in the order of `leaves`, get
  /// the leaves' storage. Each lane's kernels have the process's number of threads.
  Lanes(const models::Blocks& model, std::uint64_t seed, const std::vector<at::Tensor>& leaves,
        const LanesOptions& options, std::shared_ptr<Waiter> waiter);
  ~Lanes();
  Lanes(const Lanes&) = delete;

  int count() const noexcept;
  /// Lane number `lane`'s copy of the model; its thread uses it within run().
  const Stage& stage(int lane) const;
  /// Runs tasks 0 … tasks-1 and returns when all of them have been taken by the sink. An exception
  /// of the sink is rethrown once the lanes are idle.
  void run(std::size_t tasks, const Compute& compute, const Sink& sink);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace parallel
}  // namespace v0
}  // namespace trireme
