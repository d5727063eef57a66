// Autocast: matrix products in bf16, weights and gradients in fp32, as torch.autocast.
#include <torch/torch.h>

#include <cstdio>

#include "trireme/trireme.h"

// Numbers whose products and sums are exact in fp32, so that all processors agree.
torch::Tensor eighths(std::int64_t rows, std::int64_t columns) {
  const torch::Tensor count = torch::arange(rows * columns, torch::kLong);
  return (((count * 37) % 23 - 11).to(torch::kFloat) / 8).view({rows, columns});
}

int main() {
  const torch::Tensor x = eighths(3, 16), w = eighths(2, 16).set_requires_grad(true);
  torch::Tensor y;
  {
    const trireme::Autocast bf16;
    y = torch::nn::functional::linear(x, w);
  }
  y.to(torch::kFloat).square().sum().backward();
  std::printf("bits %d\n", static_cast<int>(y.element_size() * 8));
  const torch::Tensor values = y.to(torch::kFloat).flatten(), slopes = w.grad().flatten();
  for (std::int64_t i = 0; i < values.numel(); ++i)
    std::printf("y %.9g\n", values[i].item<double>());
  for (std::int64_t i = 0; i < slopes.numel(); ++i)
    std::printf("gradient %.9g\n", slopes[i].item<double>());
}
