// DataParallel: door (a) of API.md. Your own module, loop and torch::optim optimizer.
//
// One backward() is one micro-batch; step() replaces `adam.step(); adam.zero_grad();`. On the last
// micro-batch of the global batch (the Sampler of the same Job says where that is; without one,
// each step() ends a batch of one micro-batch per rank) it finishes the buckets, votes, applies,
// zeroes and returns true; before, it only accumulates and returns false.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "trireme/job/job.h"
#include "trireme/tensor/state.h"

namespace torch::nn {
class Module;
}
namespace torch::optim {
class Optimizer;
}

namespace trireme {
inline namespace v0 {

struct DataParallelOptions {
  std::string sync = "plain";
  double clip = 0;
  std::int64_t bucket_bytes = 4 << 20;
};

class DataParallel final : public Saveable {
 public:
  /// Broadcasts rank 0's parameters and buffers and verifies them by hash. `module` and
  /// `optimizer` must outlive it.
  DataParallel(Job& job, torch::nn::Module& module, torch::optim::Optimizer& optimizer,
               DataParallelOptions options = {});
  ~DataParallel() override;

  /// A loss that is a sum over `count` items (tokens): weighted by count, not by sample.
  void backward(const at::Tensor& sum, std::int64_t count);
  bool step();

  std::vector<NamedShard> state() override;
  std::string metadata() const override;
  void restored(const std::string& metadata) override;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace v0
}  // namespace trireme
