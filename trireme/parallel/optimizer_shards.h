// OptimizerShards: under ZeRO, a user's torch::optim optimizer updates only what this rank owns.
//
// While it lives, the optimizer's param_groups() hold, in the place of each parameter, a flat view
// of this rank's part of it (or nothing, where it owns none); state that was there is cut
// accordingly. SGD, Adam, AdamW, RMSprop and Adagrad are element-wise, so parts give the bits of
// the whole. Learning rates and other options stay the groups' own. Destroyed, it puts the
// parameters back, without state.
//
// A step() that the user calls directly would find no gradients and change nothing, silently. One
// more element in the groups, whose gradient is 1 between backward() and our own update, tells: it
// moves, and called_directly() is true from then on.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>
#include <vector>

namespace torch::optim {
class Optimizer;
}

namespace trireme {
inline namespace v0 {
namespace parallel {

class OptimizerShards {
 public:
  struct Shard {
    std::size_t parameter = 0;  // of those given
    std::int64_t begin = 0, end = 0;
    at::Tensor tensor;  // a leaf, [end - begin], over the parameter's own memory
  };
  /// ConfigError where the optimizer is of another type, which may not be element-wise.
  /// `shards[i].tensor` is a view of elements [begin, end) of a parameter's memory.
  OptimizerShards(torch::optim::Optimizer& optimizer, std::vector<at::Tensor> parameters,
                  std::vector<Shard> shards);
  ~OptimizerShards();
  OptimizerShards(const OptimizerShards&) = delete;

  std::span<Shard> shards() noexcept { return shards_; }
  /// From here on a step() that is not ours is noticed. After backward() has begun.
  void watch();
  /// Our own update comes.
  void trust();
  bool called_directly() const;

 private:
  torch::optim::Optimizer& optimizer_;
  std::vector<at::Tensor> parameters_;
  std::vector<Shard> shards_;
  std::vector<std::vector<at::Tensor>> groups_;  // as they were
  at::Tensor sentinel_;
};

}  // namespace parallel
}  // namespace v0
}  // namespace trireme
