// SyncBatchNorm: batch norm with the statistics of all ranks' micro-batches of one round. Replaces
// torch::nn::BatchNorm1d ... 3d in a DataParallel's module (same names of parameters and buffers).
//
//     norm = register_module("norm", std::make_shared<trireme::SyncBatchNorm>(job, 64));
//
// Forward and backward are collective, on a separate group. Every rank must run them equally often,
// with at least one sample; at the deadline an error names a rank that has not. The result depends
// on the number of ranks: docs/numerics.md does not promise equal bits for it. Losses are summed
// over ranks: with micro-batches of unequal size use DataParallel::backward(sum, count). Not thread
// safe.
#pragma once

#include <torch/nn/module.h>

#include <cstdint>
#include <memory>

#include "trireme/comm/communicator.h"

namespace trireme::inline v0 {

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

  /// x [B, C] or [B, C, ...], fp32 or fp64; in bf16 and fp16 it computes in fp32 and rounds the
  /// result. Sums in fp64. In evaluation mode uses the running statistics and does not communicate.
  /// ConfigError for other shapes and types; the communicator's errors.
  at::Tensor forward(const at::Tensor& x);

  at::Tensor weight, bias;                                    // [C]
  at::Tensor running_mean, running_var, num_batches_tracked;  // var with N - 1, as torch's

 private:
  SyncBatchNormOptions options_;
  std::shared_ptr<comm::Communicator> group_;
  bool reaches_devices_ = false;
};

}  // namespace trireme::inline v0
