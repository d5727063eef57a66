#include "trireme/optim/pieces.h"

#include <ATen/Functions.h>
#include <c10/core/GradMode.h>
#include <torch/nn/module.h>
#include <torch/optim/optimizer.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <string>
#include <utility>

#include "trireme/base/check.h"
#include "trireme/base/refuse.h"
#include "trireme/base/words.h"
#include "trireme/optim/gradient_square.h"
#include "trireme/tensor/devices/device.h"

namespace trireme::inline v0 {
namespace {

[[noreturn]] void refuse_call(const std::string& what) {
  refuse("GradScaler", what, "Call update() after every step().");
}

}  // namespace

ScheduledRate::ScheduledRate(torch::optim::Optimizer& optimizer, const optim::Schedule& schedule)
    : optimizer_(optimizer), schedule_(schedule) {
  optim::check(schedule);
  if (schedule.peak == 0)
    refuse("ScheduledRate", "the schedule's peak is 0, by which every group's own rate is divided",
           "Give the optimizer's rate.");
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

GradScaler::GradScaler(GradScalerOptions options)
    : options_(options), scale_(options.initial_scale) {
  if (options.initial_scale > 0 && options.growth > 1 && options.backoff > 0 &&
      options.backoff < 1 && options.growth_interval > 0)
    return;
  refuse("GradScaler", "the loss scale cannot move with these numbers",
         "growth must be above 1, backoff between 0 and 1, initial_scale and growth_interval above "
         "0.");
}

at::Tensor GradScaler::scale(const at::Tensor& loss) const { return loss * scale_; }

void GradScaler::unscale(torch::optim::Optimizer& optimizer) {
  const auto [record, is_new] = unscaled_.try_emplace(&optimizer);
  if (!is_new) refuse_call("unscale() was called twice for one step");
  Unscaled& now = record->second;
  const c10::AutoGradMode no_grad(false);
  std::vector<at::Tensor> finite;  // of each gradient; the host waits once, for all of them
  for (const auto& group : optimizer.param_groups()) {
    for (const at::Tensor& parameter : group.params()) {
      if (!parameter.grad().defined()) continue;
      parameter.grad().mul_(1.0 / scale_);
      finite.push_back(optim::dense_values(parameter.grad()).isfinite().all());
    }
  }
  const std::vector<double> found = tensor::numbers_of(finite);
  now.any = !found.empty();
  now.overflow = std::find(found.begin(), found.end(), 0.0) != found.end();
}

bool GradScaler::step(torch::optim::Optimizer& optimizer) {
  if (!unscaled_.contains(&optimizer)) unscale(optimizer);
  Unscaled& now = unscaled_.at(&optimizer);
  if (std::exchange(now.stepped, true)) refuse_call("step() was called twice for one optimizer");
  if (!now.any)
    refuse("GradScaler", "step() of an optimizer without gradients",
           "Call scale(loss).backward() before; under DataParallel, which takes the gradients, "
           "parallel.step() alone.");
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
  const bool stepped = std::any_of(unscaled_.begin(), unscaled_.end(),
                                   [](const auto& one) { return one.second.stepped; });
  if (overflow) {
    scale_ *= options_.backoff;
    good_ = 0;
  } else if (stepped && ++good_ == options_.growth_interval) {
    scale_ *= options_.growth;
    good_ = 0;
  }
  unscaled_.clear();
}

Ema::Ema(const torch::nn::Module& module, double decay) : decay_(decay) {
  if (!(decay >= 0 && decay < 1)) {
    refuse("Ema", "the decay of an average of weights is " + number_text(decay),
           "It must be at least 0 and below 1.");
  }
  std::set<const c10::TensorImpl*> seen;  // a tied tensor has several names
  const auto add = [&](const at::Tensor& own, bool averaged) {
    if (!seen.insert(own.unsafeGetTensorImpl()).second) return;
    pairs_.push_back({own, own.detach().clone(), averaged});
  };
  for (const at::Tensor& weight : module.parameters()) add(weight, weight.is_floating_point());
  for (const at::Tensor& buffer : module.buffers()) add(buffer, false);
}

void Ema::Pair::follow() { average = average.to(weight.device(), weight.scalar_type()); }

void Ema::update() {
  TRIREME_CHECK(!swapped_);
  const c10::AutoGradMode no_grad(false);
  for (Pair& pair : pairs_) {
    pair.follow();
    if (pair.averaged) {
      pair.average.lerp_(pair.weight, 1 - decay_);
    } else {
      pair.average.copy_(pair.weight);
    }
  }
  ++updates_;
}

// Swaps the values, not the tensors, so that all holders of the module's tensors see it. Back in
// reverse order, since tensors may share memory.
void Ema::swap() {
  const c10::AutoGradMode no_grad(false);
  for (std::size_t i = 0; i < pairs_.size(); ++i) {
    Pair& pair = pairs_[swapped_ ? pairs_.size() - 1 - i : i];
    pair.follow();
    const at::Tensor weight = pair.weight.clone();
    pair.weight.copy_(pair.average);
    pair.average.copy_(weight);
  }
  swapped_ = !swapped_;
}

Ema::Swap::Swap(Ema& ema) : ema_(ema) {
  TRIREME_CHECK(!ema_.swapped_);
  ema_.swap();
}
Ema::Swap::~Swap() { ema_.swap(); }

}  // namespace trireme::inline v0
