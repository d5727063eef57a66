// Ema: an average of the weights over steps, to evaluate and save, as
// torch.optim.swa_utils.AveragedModel. The trained weights do not change.
#include <torch/torch.h>

#include <cstdio>

#include "trireme/trireme.h"

int main() {
  torch::nn::Linear net(4, 1);
  net->to(torch::kDouble);
  for (torch::Tensor& one : net->parameters())
    one.detach().copy_(torch::sin(torch::arange(one.numel(), torch::kDouble)).view(one.sizes()));
  const torch::Tensor x = torch::cos(torch::arange(32, torch::kDouble)).view({8, 4});
  torch::optim::SGD sgd(net->parameters(), 0.2);

  trireme::Ema ema(*net, 0.9);
  for (int step = 0; step < 10; ++step) {
    sgd.zero_grad();
    (net->forward(x) - x.sum(1, true)).square().mean().backward();
    sgd.step();
    ema.update();
    const double trained = net->forward(x).sum().item<double>();
    const trireme::Ema::Swap averaged(ema);  // until the end of this scope
    std::printf("trained %.9g\naveraged %.9g\n", trained, net->forward(x).sum().item<double>());
  }
}
