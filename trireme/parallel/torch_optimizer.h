// What a user's torch::optim optimizer keeps per parameter, by the names PyTorch gives it, so that
// it can be saved and restored. SGD, Adam, AdamW, RMSprop and Adagrad.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace torch::optim {
class Optimizer;
}

namespace trireme {
inline namespace v0 {
namespace parallel {

/// ConfigError for LBFGS (it evaluates the loss several times per step, on one rank's data).
void require_supported(const torch::optim::Optimizer& optimizer);

/// "adam", "adamw", "sgd", "rmsprop", "adagrad"; "other" for an optimizer of another type.
std::string_view kind_of(const torch::optim::Optimizer& optimizer);
/// "exp_avg", "exp_avg_sq" … of one parameter; zeros are made where no step was taken yet. Empty
/// for an optimizer of another type.
std::vector<std::pair<std::string, at::Tensor>> state_tensors(torch::optim::Optimizer& optimizer,
                                                              const at::Tensor& parameter);
/// Throws CheckpointError where `metadata` (a JSON object) names another optimizer than `own`.
void check_optimizer_metadata(const std::string& metadata, std::string_view own, int rank);
/// The number of updates that Adam's bias correction and the like count; 0 where there is none.
std::int64_t updates(torch::optim::Optimizer& optimizer, const at::Tensor& parameter);
void set_updates(torch::optim::Optimizer& optimizer, const at::Tensor& parameter,
                 std::int64_t count);

}  // namespace parallel
}  // namespace v0
}  // namespace trireme
