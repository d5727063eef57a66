#include "trireme/sync/levels/optimizer_shards.h"

#include <ATen/Functions.h>
#include <c10/core/GradMode.h>
#include <torch/optim/optimizer.h>

#include <map>

#include "trireme/base/error.h"
#include "trireme/sync/torch_optimizer.h"

namespace trireme::inline v0::parallel {

OptimizerShards::OptimizerShards(torch::optim::Optimizer& optimizer,
                                 std::vector<at::Tensor> parameters, std::vector<Shard> shards)
    : optimizer_(optimizer), parameters_(std::move(parameters)), shards_(std::move(shards)) {
  const c10::AutoGradMode no_grad(false);
  require_element_wise(optimizer);
  std::map<const void*, std::size_t> parameter_of;
  for (std::size_t i = 0; i < parameters_.size(); ++i)
    parameter_of[parameters_[i].unsafeGetTensorImpl()] = i;
  std::map<std::size_t, const Shard*> shard_of;
  for (Shard& shard : shards_) {
    shard.tensor = shard.tensor.detach().requires_grad_(true);
    shard_of[shard.parameter] = &shard;
  }
  sentinel_ = at::ones({1}).requires_grad_(true);
  for (auto& group : optimizer.param_groups()) {
    groups_.push_back(group.params());
    std::vector<at::Tensor> mine;
    for (const at::Tensor& parameter : group.params()) {
      const auto known = parameter_of.find(parameter.unsafeGetTensorImpl());
      if (known == parameter_of.end()) {
        mine.push_back(parameter);  // not trained
        continue;
      }
      const auto shard = shard_of.find(known->second);
      if (shard == shard_of.end()) {
        forget_state(optimizer, parameter);
        continue;
      }
      cut_state(optimizer, parameter, shard->second->tensor, shard->second->begin,
                shard->second->end);
      mine.push_back(shard->second->tensor);
    }
    if (groups_.size() == 1) mine.push_back(sentinel_);
    group.params() = std::move(mine);
  }
  make_expected_state(optimizer, sentinel_);
}

OptimizerShards::~OptimizerShards() {
  for (const Shard& shard : shards_) forget_state(optimizer_, shard.tensor);
  forget_state(optimizer_, sentinel_);
  auto& groups = optimizer_.param_groups();
  for (std::size_t i = 0; i < groups.size() && i < groups_.size(); ++i) {
    groups[i].params() = groups_[i];
    for (const at::Tensor& parameter : groups_[i]) make_expected_state(optimizer_, parameter);
  }
}

void OptimizerShards::watch() { sentinel_.mutable_grad() = at::ones({1}); }
void OptimizerShards::trust() { sentinel_.mutable_grad().reset(); }

void OptimizerShards::refuse_direct_call(const std::string& sync, int rank,
                                         const std::string& host) const {
  if (*static_cast<const float*>(sentinel_.const_data_ptr()) == 1.0f) return;
  throw ConfigError("the optimizer's step() was called directly under sync = \"" + sync +
                        "\", where it has no gradients and changes nothing",
                    {.rank = rank,
                     .host = host,
                     .operation = "step",
                     .advice = "Remove that call: parallel.step() updates and zeroes."});
}

}  // namespace trireme::inline v0::parallel
