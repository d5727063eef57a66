// SyncBatchNorm: batch norm by the statistics of all ranks' micro-batches of one round together,
// for door (a), in the place of torch::nn::BatchNorm1d … 3d (the same parameters and buffers by
// name).
//
//     norm = register_module("norm", std::make_shared<trireme::SyncBatchNorm>(job, 64));
//
// Its forward and its backward are collective, on a group of its own: every rank runs them equally
// often, each with a sample at least; one that does not is waited for until the deadline, and
// named. What is normalised depends on the number of ranks, so it is not the same training on any
// layout (NUMERICS.md: not promised). Losses are summed over ranks: with micro-batches of unequal
// size use DataParallel::backward(sum, count). CPU; not thread safe.
#pragma once

#include <torch/nn/module.h>

#include <cstdint>
#include <memory>

#include "trireme/comm/communicator.h"

namespace trireme {
inline namespace v0 {

class Job;

struct SyncBatchNormOptions {
  double epsilon = 1e-5;
  double momentum = 0.1;  // of the running statistics
};

class SyncBatchNorm : public torch::nn::Module {
 public:
  /// Collective: all ranks construct theirs in the same order. `channels` = x.size(1).
  SyncBatchNorm(Job& job, std::int64_t channels, SyncBatchNormOptions options = {});
  /// Over any group, without a Job. Collective over it.
  SyncBatchNorm(comm::Communicator& group, std::int64_t channels,
                SyncBatchNormOptions options = {});

  /// x [B, C] or [B, C, ...], fp32 or fp64; in evaluation mode by the running statistics, alone.
  /// Sums in fp64. ConfigError for other shapes; the communicator's errors.
  at::Tensor forward(const at::Tensor& x);

  at::Tensor weight, bias;                                    // [C]
  at::Tensor running_mean, running_var, num_batches_tracked;  // var with N - 1, as torch's

 private:
  SyncBatchNormOptions options_;
  std::shared_ptr<comm::Communicator> group_;
};

}  // namespace v0
}  // namespace trireme
