#include "trireme/optim/pieces.h"

#include <ATen/Functions.h>
#include <c10/core/GradMode.h>
#include <torch/optim/optimizer.h>

#include <algorithm>

#include "trireme/base/error.h"

namespace trireme::inline v0 {

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
  const auto [record, is_new] = overflow_.try_emplace(&optimizer, false);
  if (!is_new) {
    throw ConfigError("unscale() was called twice for one step",
                      {.operation = "GradScaler", .advice = "Call update() after every step()."});
  }
  const c10::AutoGradMode no_grad(false);
  for (const auto& group : optimizer.param_groups()) {
    for (const at::Tensor& parameter : group.params()) {
      if (!parameter.grad().defined()) continue;
      at::Tensor gradient = parameter.grad();
      gradient.mul_(1.0 / scale_);
      record->second = record->second || !gradient.isfinite().all().item<bool>();
    }
  }
}

bool GradScaler::step(torch::optim::Optimizer& optimizer) {
  if (!overflow_.contains(&optimizer)) unscale(optimizer);
  if (overflow_.at(&optimizer)) {
    ++skipped_;
    return false;
  }
  optimizer.step();
  return true;
}

void GradScaler::update() {
  const bool overflow =
      std::any_of(overflow_.begin(), overflow_.end(), [](const auto& one) { return one.second; });
  if (overflow) {
    scale_ *= options_.backoff;
    good_ = 0;
  } else if (++good_ == options_.growth_interval) {
    scale_ *= options_.growth;
    good_ = 0;
  }
  overflow_.clear();
}

}  // namespace trireme::inline v0
