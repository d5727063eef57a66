#include "trireme/optim/pieces.h"

#include <ATen/Functions.h>
#include <c10/core/GradMode.h>
#include <torch/optim/optimizer.h>

#include <algorithm>
#include <string>
#include <utility>

#include "trireme/base/error.h"

namespace trireme::inline v0 {
namespace {

[[noreturn]] void refuse(const std::string& what) {
  throw ConfigError(what,
                    {.operation = "GradScaler", .advice = "Call update() after every step()."});
}

}  // namespace

GradScaler::GradScaler(GradScalerOptions options)
    : options_(options), scale_(options.initial_scale) {
  if (options.initial_scale > 0 && options.growth > 1 && options.backoff > 0 &&
      options.backoff < 1 && options.growth_interval > 0)
    return;
  throw ConfigError("the loss scale cannot move with these numbers",
                    {.operation = "GradScaler",
                     .advice = "growth must be above 1, backoff between 0 and 1, initial_scale and "
                               "growth_interval above 0."});
}

at::Tensor GradScaler::scale(const at::Tensor& loss) const { return loss * scale_; }

void GradScaler::unscale(torch::optim::Optimizer& optimizer) {
  const auto [record, is_new] = unscaled_.try_emplace(&optimizer);
  if (!is_new) refuse("unscale() was called twice for one step");
  Unscaled& now = record->second;
  const c10::AutoGradMode no_grad(false);
  for (const auto& group : optimizer.param_groups()) {
    for (const at::Tensor& parameter : group.params()) {
      if (!parameter.grad().defined()) continue;
      at::Tensor gradient = parameter.grad();
      gradient.mul_(1.0 / scale_);
      now.any = true;
      now.overflow = now.overflow || !gradient.isfinite().all().item<bool>();
    }
  }
}

bool GradScaler::step(torch::optim::Optimizer& optimizer) {
  if (!unscaled_.contains(&optimizer)) unscale(optimizer);
  Unscaled& now = unscaled_.at(&optimizer);
  if (std::exchange(now.stepped, true)) refuse("step() was called twice for one optimizer");
  if (!now.any)
    throw ConfigError("step() of an optimizer without gradients",
                      {.operation = "GradScaler",
                       .advice = "Call scale(loss).backward() before; under DataParallel, which "
                                 "takes the gradients, parallel.step() alone."});
  if (now.overflow) {
    ++skipped_;
    return false;
  }
  optimizer.step();
  return true;
}

void GradScaler::update() {
  const bool overflow = std::any_of(unscaled_.begin(), unscaled_.end(),
                                    [](const auto& one) { return one.second.overflow; });
  if (overflow) {
    scale_ *= options_.backoff;
    good_ = 0;
  } else if (++good_ == options_.growth_interval) {
    scale_ *= options_.growth;
    good_ = 0;
  }
  unscaled_.clear();
}

}  // namespace trireme::inline v0
