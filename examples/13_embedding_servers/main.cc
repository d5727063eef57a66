// Which of ten million users likes which item? Every user and item has a row of 8 numbers, on parameter
// servers. A worker pulls the rows of its batch and pushes their gradients; rows that no batch has
// used take no memory.
#include <torch/torch.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include "trireme/trireme.h"

constexpr std::int64_t kUsers = 10'000'000, kItems = 1'000, kSamples = 6'400;

// Sample i is a function of i: few users come often, most never. A user likes the items of its own group
// out of four.
struct Visits : torch::data::datasets::Dataset<Visits> {
  torch::data::Example<> get(std::size_t index) override {
    const auto drawn = [&](std::uint64_t salt) {
      const std::uint64_t word = (index * 2 + salt) * 0x9e3779b97f4a7c15;
      return static_cast<double>((word ^ (word >> 29)) * 0xbf58476d1ce4e5b9 >> 11) * 0x1p-53;
    };
    const auto user = static_cast<std::int64_t>(kUsers * std::pow(drawn(0), 20));
    auto item = static_cast<std::int64_t>(kItems * std::pow(drawn(1), 8));
    if (index % 3 == 0) item = item - item % 4 + user % 4;  // then half of all samples are likes
    const float likes = user % 4 == item % 4 ? 1 : 0;
    return {torch::tensor({user, item}), torch::tensor(likes)};
  }
  std::optional<std::size_t> size() const override { return kSamples; }
};

struct Net : torch::nn::Module {
  std::shared_ptr<trireme::ServerEmbedding> users, items;
  torch::nn::Linear scale = nullptr;
  Net() {
    const auto table = [](const char* name) {
      return std::make_shared<trireme::ServerEmbedding>(
          trireme::ServerEmbeddingOptions{.name = name, .width = 8, .bound = 0.5});
    };
    users = register_module("users", table("users"));
    items = register_module("items", table("items"));
    scale = register_module("scale", torch::nn::Linear(1, 1));
  }
  torch::Tensor forward(const torch::Tensor& pairs) {
    const auto user = users->forward(pairs.select(1, 0)), item = items->forward(pairs.select(1, 1));
    return scale->forward((user * item).sum(1, /*keepdim=*/true)).squeeze(1);
  }
};

int main(int argc, char** argv) {
  const int epochs = argc > 1 ? std::atoi(argv[1]) : 8;
  const int staleness = argc > 2 ? std::atoi(argv[2]) : 0;
  trireme::Job job(argc, argv);
  if (job.role() == trireme::Role::Server) return trireme::serve(job);
  torch::manual_seed(1);
  Net net;
  torch::optim::Adam adam(net.parameters(), 2e-2);
  trireme::DataParallel parallel(job, net, adam, {.sync = "server", .staleness = staleness});
  auto data = Visits().map(torch::data::transforms::Stack<>());
  auto loader =
      torch::data::make_data_loader(data, trireme::Sampler(job, kSamples, {.batch = 64}), 16);
  for (int epoch = 0; epoch < epochs; ++epoch) {
    for (auto& batch : *loader) {
      torch::nn::functional::binary_cross_entropy_with_logits(net.forward(batch.data), batch.target)
          .backward();
      parallel.step();
    }
  }
  torch::NoGradGuard no_grad;
  double right = 0;
  constexpr int kAsked = 2'000;  // later samples of the same users and items
  for (int i = 0; i < kAsked; i += 100) {
    std::vector<torch::data::Example<>> asked;
    for (int k = 0; k < 100; ++k) asked.push_back(Visits().get(kSamples + i + k));
    const auto batch = torch::data::transforms::Stack<>().apply_batch(asked);
    right += ((net.forward(batch.data) > 0) == (batch.target > 0)).sum().item<double>();
  }
  std::printf("%d epochs: %.0f %% right\n", epochs, 100 * right / kAsked);
}
