// OptimizerShards: under ZeRO, a user's torch::optim optimizer updates only what this rank owns.
//
// While it lives, the optimizer's param_groups() hold, instead of each parameter, a flat view of
// this rank's shard of it, or nothing if the rank owns none. Existing optimizer state is cut in the
// same way. SGD, Adam, AdamW, RMSprop and Adagrad are element-wise, so updating shards gives the
// bits of updating the whole. Learning rates and other options stay in the groups. The destructor
// puts the parameters back, without state.
//
// A step() that the user calls directly would find no gradients and silently change nothing. The
// groups therefore hold a sentinel element whose gradient is 1 between backward() and our own
// update. A direct step() changes it, and refuse_direct_call() throws from then on.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace torch::optim {
class Optimizer;
}

namespace trireme::inline v0::parallel {

class OptimizerShards {
 public:
  struct Shard {
    std::size_t parameter = 0;  // index into `parameters`
    std::int64_t begin = 0, end = 0;
    at::Tensor tensor;  // a leaf, [end - begin], over the parameter's own memory
  };
  /// ConfigError if the optimizer is of another type, which may not be element-wise.
  /// `shards[i].tensor` is a view of elements [begin, end) of a parameter's memory.
  OptimizerShards(torch::optim::Optimizer& optimizer, std::vector<at::Tensor> parameters,
                  std::vector<Shard> shards);
  ~OptimizerShards();
  OptimizerShards(const OptimizerShards&) = delete;

  std::span<Shard> shards() noexcept { return shards_; }
  /// Arms the sentinel: from now on a direct step() is noticed. Call after backward() has begun.
  void watch();
  /// Disarms the sentinel for our own update.
  void trust();
  /// Throws ConfigError if step() was called directly. `sync`: its name; `rank`, `host`: this one.
  void refuse_direct_call(const std::string& sync, int rank, const std::string& host) const;

 private:
  torch::optim::Optimizer& optimizer_;
  std::vector<at::Tensor> parameters_;
  std::vector<Shard> shards_;
  std::vector<std::vector<at::Tensor>> groups_;  // as they were before
  at::Tensor sentinel_;
};

}  // namespace trireme::inline v0::parallel
