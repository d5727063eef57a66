// A small network learns which of three spirals a point lies on. Parameter servers hold its weights:
// workers push gradients to them and get weights back. With a staleness other than 0 no worker waits
// for all others.
#include <torch/torch.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include "trireme/trireme.h"

using torch::data::make_data_loader;
namespace samplers = torch::data::samplers;
constexpr int kPoints = 1200;

// Point i lies on spiral i mod 3; it is a function of i.
struct Spirals : torch::data::datasets::Dataset<Spirals> {
  torch::data::Example<> get(std::size_t index) override {
    const double along = static_cast<double>(index / 3) / (kPoints / 3);
    const double angle = 4 * along + 2.0944 * static_cast<double>(index % 3);
    return {torch::tensor({along * std::cos(angle), along * std::sin(angle)}).to(torch::kFloat),
            torch::tensor(static_cast<std::int64_t>(index % 3))};
  }
  std::optional<std::size_t> size() const override { return kPoints; }
};

int main(int argc, char** argv) {
  const int epochs = argc > 1 ? std::atoi(argv[1]) : 10;
  const int staleness = argc > 2 ? std::atoi(argv[2]) : 0;
  trireme::Job job(argc, argv);
  if (job.role() == trireme::Role::Server) return trireme::serve(job);
  torch::manual_seed(1);
  torch::nn::Sequential net(torch::nn::Linear(2, 64), torch::nn::Tanh(), torch::nn::Linear(64, 64),
                            torch::nn::Tanh(), torch::nn::Linear(64, 3));
  torch::optim::Adam adam(net->parameters(), 1e-2);
  trireme::DataParallel parallel(job, *net, adam, {.sync = "server", .staleness = staleness});
  auto data = Spirals().map(torch::data::transforms::Stack<>());
  auto loader = make_data_loader(data, trireme::Sampler(job, kPoints, {.batch = 64}), 8);
  for (int epoch = 0; epoch < epochs; ++epoch) {
    for (auto& batch : *loader) {
      torch::nn::functional::cross_entropy(net->forward(batch.data), batch.target).backward();
      parallel.step();
    }
  }
  torch::NoGradGuard no_grad;
  double right = 0;
  for (std::size_t i = 0; i < kPoints; ++i) {
    const auto point = Spirals().get(i);
    right += net->forward(point.data).argmax().equal(point.target) ? 1 : 0;
  }
  std::printf("%d epochs: %.0f %% right\n", epochs, 100 * right / kPoints);
}
