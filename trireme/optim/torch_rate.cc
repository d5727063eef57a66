#include "trireme/optim/pieces.h"

#include <ATen/Functions.h>
#include <c10/core/GradMode.h>
#include <torch/optim/optimizer.h>

#include <cmath>

#include "trireme/base/error.h"
#include "trireme/optim/gradient_square.h"
#include "trireme/tensor/devices/device.h"

namespace trireme::inline v0 {

ScheduledRate::ScheduledRate(torch::optim::Optimizer& optimizer, const optim::Schedule& schedule)
    : optimizer_(optimizer), schedule_(schedule) {
  optim::check(schedule);
  if (schedule.peak == 0)
    throw ConfigError("the schedule's peak is 0, by which every group's own rate is divided",
                      {.operation = "ScheduledRate", .advice = "Give the optimizer's rate."});
  for (auto& group : optimizer_.param_groups()) own_.push_back(group.options().get_lr());
  set(0);
}

void ScheduledRate::set(std::int64_t step) {
  step_ = step;
  const double share = optim::learning_rate(schedule_, step) / schedule_.peak;
  std::size_t index = 0;
  for (auto& group : optimizer_.param_groups())
    if (index < own_.size()) group.options().set_lr(own_[index++] * share);
}

double ScheduledRate::rate() const { return optimizer_.param_groups().front().options().get_lr(); }

double clip_grad_norm(const std::vector<at::Tensor>& parameters, double limit) {
  const c10::AutoGradMode no_grad(false);
  std::vector<at::Tensor> squares;
  for (const at::Tensor& parameter : parameters)
    if (parameter.grad().defined()) squares.push_back(optim::gradient_square(parameter.grad()));
  double sum = 0;
  for (const double square : tensor::numbers_on_host(squares)) sum += square;
  const double norm = std::sqrt(sum), factor = optim::clipping_factor(norm, limit);
  if (!std::isfinite(norm) || factor == 1.0) return norm;
  for (const at::Tensor& parameter : parameters)
    if (parameter.grad().defined()) parameter.grad().mul_(factor);
  return norm;
}

}  // namespace trireme::inline v0
