// GradScaler: scales the loss so that small gradients survive in fp16, as torch.amp.GradScaler.
// Step 3 overflows: it is skipped and the scale falls; after two good steps the scale grows.
#include <torch/torch.h>

#include <cstdio>
#include <limits>

#include "trireme/trireme.h"

int main() {
  const torch::Tensor w = torch::arange(1, 5, torch::kFloat).set_requires_grad(true);
  torch::optim::SGD sgd({w}, 0.125);
  trireme::GradScaler scaler({.initial_scale = 1024, .growth_interval = 2});
  for (int step = 0; step < 8; ++step) {
    sgd.zero_grad();
    scaler.scale(w.square().sum()).backward();
    if (step == 3) w.mutable_grad()[0] = std::numeric_limits<float>::infinity();
    scaler.step(sgd);
    scaler.update();
    std::printf("scale %.9g\nw %.9g\n", scaler.current_scale(), w.sum().item<double>());
  }
}
