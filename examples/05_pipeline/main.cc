// A list of blocks divided among several ranks, with any order of passes:
//
//     pipeline RANKS_OF_A_PIPELINE [SCHEDULE]
//
// Further ranks form more pipelines, which are data parallel. The weights stay the same, bit for
// bit.
#include <torch/torch.h>

#include <cstdio>
#include <cstdlib>

#include "trireme/trireme.h"

namespace {

constexpr std::int64_t kWidth = 128, kSteps = 5;
constexpr int kLayers = 6;

// Sample i is a function of i: its targets are its features, shifted. The first block reads
// "tokens".
struct Shifted : trireme::Dataset {
  std::int64_t size() const override { return 256; }
  std::int64_t count_items(std::span<const std::int64_t> samples) const override {
    return static_cast<std::int64_t>(samples.size());
  }
  trireme::input::Fields read(std::span<const std::int64_t> samples) const override {
    std::vector<torch::Tensor> rows;
    for (const std::int64_t i : samples)
      rows.push_back(torch::sin(torch::arange(kWidth) * (0.01 * static_cast<double>(i + 1))));
    const torch::Tensor features = torch::stack(rows);
    return {{"tokens", features}, {"targets", features.roll(1, 1)}};
  }
};

}  // namespace

int main(int argc, char** argv) {
  trireme::Job job(argc, argv);
  const int ranks = argc > 1 ? std::atoi(argv[1]) : 1;
  const std::string schedule = argc > 2 ? argv[2] : "1f1b";

  trireme::Blocks net;  // factories: a rank builds only its own blocks
  net.add("in", [] { return torch::nn::Linear(kWidth, kWidth); });
  for (int i = 0; i < kLayers; ++i)
    net.add("layer." + std::to_string(i), [] {
      return torch::nn::Sequential(torch::nn::GELU(), torch::nn::Linear(kWidth, kWidth));
    });
  net.add("out", [] { return torch::nn::Linear(kWidth, kWidth); });
  trireme::Strategy strategy(job, net, {.pipeline = ranks, .schedule = schedule, .clip = 1},
                             trireme::AdamW{});

  auto data = trireme::batches(job, std::make_shared<Shifted>(), {.batch = 32, .micro = 8});
  const trireme::Loss loss = [](const auto& output, const trireme::MicroBatch& micro) {
    return (output.at(0) - micro.field("targets")).pow(2).sum();
  };
  double last = 0;
  for (std::int64_t step = 0; step < kSteps; ++step) last = strategy.step(data.next(), loss).loss;

  std::int64_t own = 0;  // elements of this rank's weights
  for (const trireme::NamedShard& shard : strategy.state())
    if (shard.name.find('/') == std::string::npos) own += shard.local.numel();
  const std::string hash = strategy.weights_hash();
  std::printf("%s: rank %d has %.0f %% of the weights; loss %.3f; the weights are %.8s\n",
              schedule.c_str(), job.rank(),
              100.0 * static_cast<double>(own) / static_cast<double>(strategy.num_parameters()),
              last, hash.c_str());
}
