#include "trireme/optim/pieces.h"

#include <ATen/Functions.h>
#include <c10/core/GradMode.h>
#include <torch/nn/module.h>

#include <set>

#include "trireme/base/check.h"
#include "trireme/base/error.h"
#include "trireme/base/words.h"

namespace trireme::inline v0 {

Ema::Ema(const torch::nn::Module& module, double decay) : decay_(decay) {
  if (!(decay >= 0 && decay < 1)) {
    throw ConfigError("the decay of an average of weights is " + number_text(decay),
                      {.operation = "Ema", .advice = "It must be at least 0 and below 1."});
  }
  std::set<const c10::TensorImpl*> seen;  // a tied tensor has several names
  const auto add = [&](const at::Tensor& own, bool averaged) {
    if (!seen.insert(own.unsafeGetTensorImpl()).second) return;
    pairs_.push_back({own.detach(), own.detach().clone(), averaged});
  };
  for (const at::Tensor& weight : module.parameters()) add(weight, weight.is_floating_point());
  for (const at::Tensor& buffer : module.buffers()) add(buffer, false);
}

void Ema::update() {
  TRIREME_CHECK(!swapped_);
  const c10::AutoGradMode no_grad(false);
  for (Pair& pair : pairs_) {
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
