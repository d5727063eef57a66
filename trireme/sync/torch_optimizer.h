// The per-parameter state of a user's torch::optim optimizer, under PyTorch's names, so that it can
// be saved and restored. SGD, Adam, AdamW, RMSprop and Adagrad.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "trireme/kernel/optimizers/optimizers.h"

namespace torch::optim {
class Optimizer;
class OptimizerOptions;
}  // namespace torch::optim

namespace trireme::inline v0::parallel {

/// "SGD", "Adam", "AdamW", "RMSprop", "Adagrad", "LBFGS"; "an optimizer of its own" for others.
std::string name_of(const torch::optim::Optimizer& optimizer);

/// ", momentum 0.9, weight_decay 0": the numbers of a parameter group except its learning rate.
/// Empty for an optimizer of another type.
std::string numbers_of(const torch::optim::Optimizer& optimizer,
                       const torch::optim::OptimizerOptions& options);

/// The learning rates, by parameter group.
std::vector<double> learning_rates(const torch::optim::Optimizer& optimizer);
void set_learning_rates(torch::optim::Optimizer& optimizer, const std::vector<double>& rates);

/// ConfigError for LBFGS (it evaluates the loss several times per step, on one rank's data).
void require_supported(const torch::optim::Optimizer& optimizer);

/// ConfigError for any but SGD, Adam, AdamW, RMSprop, Adagrad: others may need a whole parameter.
void require_element_wise(const torch::optim::Optimizer& optimizer);

/// The same optimizer as Trireme's own, for servers: SGD, AdamW, Adam without weight decay,
/// Adagrad. ConfigError for others, for amsgrad and lr_decay, and for several parameter groups.
OptimizerOptions own_optimizer(torch::optim::Optimizer& optimizer);

/// Moves elements [begin, end) of the state of `from` to `to`, a flat view of them; drops the rest.
void cut_state(torch::optim::Optimizer& optimizer, const at::Tensor& from, const at::Tensor& to,
               std::int64_t begin, std::int64_t end);
void forget_state(torch::optim::Optimizer& optimizer, const at::Tensor& parameter);

/// Makes the state that Adagrad's first update expects.
void make_expected_state(torch::optim::Optimizer& optimizer, const at::Tensor& parameter);

/// "exp_avg", "exp_avg_sq" ... of one parameter; if no step was taken yet, makes those with which
/// the optimizer starts: zeros, or Adagrad's initial_accumulator_value. Empty for an optimizer or a
/// state of another type. They change no update, except where SGD dampens().
std::vector<std::pair<std::string, at::Tensor>> state_tensors(torch::optim::Optimizer& optimizer,
                                                              const at::Tensor& parameter);
/// Whether the optimizer's class is derived from one of these. Its state may have another type.
bool is_derived(const torch::optim::Optimizer& optimizer);
/// Whether the parameter has no state yet, and one that state_tensors() makes would not do for the
/// first update: the optimizer is SGD with momentum, or is_derived().
bool lacks_state(torch::optim::Optimizer& optimizer, const at::Tensor& parameter);
/// Whether SGD's first update of the parameter depends on whether a momentum of zeros exists. With
/// dampening the update takes the whole gradient as momentum if there is none, and else a part.
bool dampens(torch::optim::Optimizer& optimizer, const at::Tensor& parameter);
/// Whether a tensor of the parameter's state has an element other than zero.
bool has_momentum(torch::optim::Optimizer& optimizer, const at::Tensor& parameter);
/// The number of updates, as Adam's bias correction counts them; 0 if the optimizer counts none.
std::int64_t updates(torch::optim::Optimizer& optimizer, const at::Tensor& parameter);
void set_updates(torch::optim::Optimizer& optimizer, const at::Tensor& parameter,
                 std::int64_t count);

}  // namespace trireme::inline v0::parallel
