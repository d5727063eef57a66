// Trains a list of blocks; one word chooses what each rank keeps:
//
//     zero plain|zero1|zero2|zero3|hybrid
//
// The bytes per rank fall; the weights stay the same, bit for bit, on any number of ranks.
#include <torch/torch.h>

#include <cstdio>

#include "trireme/trireme.h"

namespace {

constexpr std::int64_t kWidth = 256, kLayers = 6, kSteps = 5;

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
  const std::string sync = argc > 1 ? argv[1] : "plain";

  trireme::Blocks net;  // factories: under zero3 a rank holds one block whole while it builds
  net.add("in", [] { return torch::nn::Linear(kWidth, kWidth); });
  for (int i = 0; i < kLayers; ++i)
    net.add("layer." + std::to_string(i), [] {
      return torch::nn::Sequential(torch::nn::GELU(), torch::nn::Linear(kWidth, kWidth));
    });
  trireme::Strategy strategy(job, net, {.sync = sync, .clip = 1}, trireme::AdamW{});

  auto data = trireme::batches(job, std::make_shared<Shifted>(), {.batch = 32, .micro = 4});
  const trireme::Loss loss = [](const auto& output, const trireme::MicroBatch& micro) {
    return (output.at(0) - micro.field("targets")).pow(2).sum();
  };
  for (std::int64_t step = 0; step < kSteps; ++step) strategy.step(data.next(), loss);

  std::int64_t bytes = strategy.gradient_bytes();
  for (const trireme::NamedShard& shard : strategy.state()) bytes += shard.local.nbytes();
  const std::string hash = strategy.weights_hash();
  std::printf("%s: rank %d keeps %.1f MB of %.1f million parameters; the weights are %.8s\n",
              sync.c_str(), job.rank(), static_cast<double>(bytes) / 1e6,
              static_cast<double>(strategy.num_parameters()) / 1e6, hash.c_str());
}
