// ActivationFile: blocks keep what they save for backward in a mapped file instead of in memory, as
// with torch.autograd.graph.saved_tensors_hooks; a thread writes it and reads it back.
#include <torch/torch.h>

#include <cstdio>
#include <vector>

#include "trireme/trireme.h"

int main() {
  std::vector<torch::nn::Linear> layers;
  for (int i = 0; i < 4; ++i) {
    layers.emplace_back(64, 64);
    layers.back()->to(torch::kDouble);
    for (torch::Tensor& one : layers.back()->parameters())
      one.detach().copy_(
          torch::sin(torch::arange(one.numel(), torch::kDouble) + i).view(one.sizes()));
  }
  const torch::Tensor x = torch::cos(torch::arange(65536, torch::kDouble)).view({1024, 64});

  trireme::memory::ActivationFile file("/tmp");
  for (int step = 0; step < 2; ++step) {
    torch::Tensor h = x;
    file.begin_pass();
    for (torch::nn::Linear& layer : layers)
      h = file.run([&](const torch::Tensor& in) { return torch::tanh(layer->forward(in)); }, h);
    h.square().sum().backward();
    std::printf("output %.9g\n", h.sum().item<double>());
  }
  std::printf("bytes %lld\n", static_cast<long long>(file.bytes()));
  for (torch::nn::Linear& layer : layers)
    std::printf("gradient %.9g\n", layer->weight.grad().abs().sum().item<double>());
}
