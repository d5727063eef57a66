// ScheduledRate: a learning-rate schedule on any torch::optim optimizer. Here: warm-up and cosine
// on Adam, then one-cycle on SGD, as in torch.optim.lr_scheduler.
#include <torch/torch.h>

#include <cstdio>

#include "trireme/trireme.h"

template <class Optimizer>
void train(const char* name, Optimizer& optimizer, const trireme::optim::Schedule& schedule,
           const torch::Tensor& w) {
  trireme::ScheduledRate rate(optimizer, schedule);
  for (int step = 0; step < 12; ++step) {
    optimizer.zero_grad();
    (w - 1).square().sum().backward();
    optimizer.step();
    std::printf("%s_rate %.9g\n%s_w %.9g\n", name, rate.rate(), name, w.sum().item<double>());
    rate.step();
  }
}

int main() {
  const torch::Tensor a = torch::arange(6, torch::kDouble).set_requires_grad(true);
  torch::optim::Adam adam({a}, 0.3);
  train("cosine", adam, {.peak = 0.3, .final_rate = 0.03, .warmup = 3, .steps = 12}, a);

  const torch::Tensor b = torch::arange(6, torch::kDouble).set_requires_grad(true);
  torch::optim::SGD sgd({b}, 0.2);
  train("one_cycle", sgd,
        {.peak = 0.2,
         .final_rate = 2e-6,
         .steps = 12,
         .decay = trireme::optim::Decay::OneCycle,
         .start_divisor = 10,
         .rise = 0.5},
        b);
}
