// clip_grad_norm: gradients scaled to a common norm, as torch.nn.utils.clip_grad_norm_.
#include <torch/torch.h>

#include <cstdio>

#include "trireme/trireme.h"

int main() {
  const torch::Tensor a = torch::sin(torch::arange(12, torch::kDouble)).set_requires_grad(true);
  const torch::Tensor b = torch::cos(torch::arange(5, torch::kDouble)).set_requires_grad(true);
  torch::optim::SGD sgd({a, b}, 0.1);
  for (int step = 0; step < 4; ++step) {
    sgd.zero_grad();
    ((3 * a).exp().sum() + b.pow(4).sum()).backward();
    std::printf("norm %.9g\n", trireme::clip_grad_norm({a, b}, 1.0));
    sgd.step();
    std::printf("a %.9g\nb %.9g\n", a.sum().item<double>(), b.sum().item<double>());
  }
}
