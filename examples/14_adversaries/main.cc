// Two modules with two optimizers in one loop: a generator learns to make points on a circle, and a
// discriminator learns to tell them from real points (Goodfellow et al. 2014).
#include <torch/torch.h>

#include <cmath>
#include <cstdio>

#include "trireme/trireme.h"

namespace nn = torch::nn;
using Point = torch::data::TensorExample;
constexpr int kPoints = 2048, kEpochs = 20;

// Point i is a function of i.
struct Circle : torch::data::datasets::Dataset<Circle, Point> {
  Point get(std::size_t index) override {
    const double angle = 2.4 * static_cast<double>(index);
    return torch::tensor({std::cos(angle), std::sin(angle)}).to(torch::kFloat);
  }
  std::optional<std::size_t> size() const override { return kPoints; }
};

torch::Tensor loss(const torch::Tensor& scores, double wanted) {
  return nn::functional::binary_cross_entropy_with_logits(scores, torch::full_like(scores, wanted));
}

int main(int argc, char** argv) {
  trireme::Job job(argc, argv);
  torch::manual_seed(1);
  nn::Sequential discriminator(nn::Linear(2, 64), nn::LeakyReLU(), nn::Dropout(0.1),
                               nn::Linear(64, 64), nn::LeakyReLU(), nn::Linear(64, 1));
  nn::Sequential generator(nn::Linear(4, 64), nn::ReLU(), nn::Linear(64, 64), nn::ReLU(),
                           nn::Linear(64, 2));
  torch::optim::Adam of_discriminator(discriminator->parameters(), 2e-3);
  torch::optim::Adam of_generator(generator->parameters(), 2e-3);
  auto loader = torch::data::make_data_loader(Circle().map(torch::data::transforms::Stack<Point>()),
                                              trireme::Sampler(job, kPoints, {.batch = 64}),
                                              /*batch_size=*/8);
  // [loop]
  trireme::DataParallel judging(job, *discriminator, of_discriminator);
  trireme::DataParallel forging(job, *generator, of_generator);
  for (int epoch = 0; epoch < kEpochs; ++epoch) {
    for (auto& points : *loader) {
      const auto fakes = generator->forward(torch::randn({points.data.size(0), 4}));
      const auto judgement = loss(discriminator->forward(points.data), 1) +
                             loss(discriminator->forward(fakes.detach()), 0);
      const auto forgery = loss(discriminator->forward(fakes), 1);
      judging.backward(judgement);  // gradients of the discriminator alone
      forging.backward(forgery);    // gradients of the generator alone
      judging.step();
      forging.step();
    }
  }
  // [/loop]
  const torch::NoGradGuard no_grad;
  const torch::Tensor radius = generator->forward(torch::randn({1000, 4})).norm(2, 1);
  std::printf("radius %.2f, weights %s %s\n", radius.mean().item<double>(),
              judging.weights_hash().substr(0, 8).c_str(),
              forging.weights_hash().substr(0, 8).c_str());
}
