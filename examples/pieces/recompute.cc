// recompute: recomputes a block's activations in backward instead of keeping them, as
// torch.utils.checkpoint does; dropout draws the same numbers again.
#include <torch/torch.h>

#include <cstdio>
#include <vector>

#include "trireme/trireme.h"

int main() {
  std::vector<torch::nn::Linear> layers;
  for (int i = 0; i < 4; ++i) {
    layers.emplace_back(8, 8);
    layers.back()->to(torch::kDouble);
    for (torch::Tensor& one : layers.back()->parameters())
      one.detach().copy_(
          torch::sin(torch::arange(one.numel(), torch::kDouble) + i).view(one.sizes()));
  }
  const torch::Tensor x = torch::cos(torch::arange(48, torch::kDouble)).view({6, 8});

  int runs = 0;  // of blocks
  torch::manual_seed(5);
  torch::Tensor h = x;
  for (torch::nn::Linear& layer : layers) {
    const auto block = [&](const torch::Tensor& in) {
      ++runs;
      return torch::tanh(torch::dropout(layer->forward(in), 0.25, true));
    };
    h = trireme::memory::recompute(block, h);
  }
  h.square().sum().backward();
  std::printf("output %.9g\nruns %d\n", h.sum().item<double>(), runs);
  for (torch::nn::Linear& layer : layers)
    std::printf("gradient %.9g\n", layer->weight.grad().abs().sum().item<double>());
}
