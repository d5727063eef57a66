// What a user's torch::optim optimizer keeps per parameter, by the names PyTorch gives it, so that
// it can be saved and restored. SGD, Adam, AdamW, RMSprop and Adagrad.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace torch::optim {
class Optimizer;
}

namespace trireme {
inline namespace v0 {
namespace parallel {

/// "SGD", "Adam", "AdamW", "RMSprop", "Adagrad", "LBFGS"; "an optimizer of its own" for others.
std::string name_of(const torch::optim::Optimizer& optimizer);

/// ConfigError for LBFGS (it evaluates the loss several times per step, on one rank's data).
void require_supported(const torch::optim::Optimizer& optimizer);

/// ConfigError for any but SGD, Adam, AdamW, RMSprop and Adagrad: another may look at a parameter
/// as a whole.
void require_element_wise(const torch::optim::Optimizer& optimizer);

/// `to`, a flat view of elements [begin, end) of `from`, gets that part of what is kept for `from`,
/// which is forgotten.
void cut_state(torch::optim::Optimizer& optimizer, const at::Tensor& from, const at::Tensor& to,
               std::int64_t begin, std::int64_t end);
void forget_state(torch::optim::Optimizer& optimizer, const at::Tensor& parameter);

/// "exp_avg", "exp_avg_sq" … of one parameter; zeros are made where no step was taken yet. Empty
/// for an optimizer of another type.
std::vector<std::pair<std::string, at::Tensor>> state_tensors(torch::optim::Optimizer& optimizer,
                                                              const at::Tensor& parameter);
/// The number of updates that Adam's bias correction and the like count; 0 where there is none.
std::int64_t updates(torch::optim::Optimizer& optimizer, const at::Tensor& parameter);
void set_updates(torch::optim::Optimizer& optimizer, const at::Tensor& parameter,
                 std::int64_t count);

}  // namespace parallel
}  // namespace v0
}  // namespace trireme
