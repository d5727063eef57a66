// Every axis at once: a small GPT on a mesh of pipeline x data x tensor ranks.
//
//     hybrid PIPELINE TENSOR [SYNC]
//
// The remaining axis is data parallel. With equal numbers of tensor-parallel ranks the weights are
// the same, bit for bit, on every mesh; otherwise they differ by rounding.
#include <torch/torch.h>

#include <cstdio>
#include <cstdlib>

#include "trireme/trireme.h"

namespace {

constexpr std::int64_t kBlock = 32, kVocab = 64, kSteps = 5;

// Sample i counts from i, in steps that depend on i.
struct Counting : trireme::Dataset {
  std::int64_t size() const override { return 512; }
  std::int64_t count_items(std::span<const std::int64_t> samples) const override {
    return static_cast<std::int64_t>(samples.size()) * kBlock;
  }
  trireme::input::Fields read(std::span<const std::int64_t> samples) const override {
    std::vector<torch::Tensor> rows;
    for (const std::int64_t i : samples)
      rows.push_back((torch::arange(kBlock + 1) * (1 + i % 5) + i).remainder(kVocab));
    const torch::Tensor text = torch::stack(rows);
    return {{"tokens", text.narrow(1, 0, kBlock).contiguous()},
            {"targets", text.narrow(1, 1, kBlock).contiguous()}};
  }
};

}  // namespace

int main(int argc, char** argv) {
  trireme::Job job(argc, argv);
  trireme::StrategyOptions mesh{.clip = 1};
  if (argc > 1) mesh.pipeline = std::atoi(argv[1]);
  if (argc > 2) mesh.tensor = std::atoi(argv[2]);
  if (argc > 3) mesh.sync = argv[3];

  const trireme::Blocks gpt = trireme::models::make_gpt(
      {.layers = 4, .heads = 4, .width = 64, .block = kBlock, .vocab = kVocab});
  trireme::Strategy strategy(job, gpt, mesh, trireme::AdamW{.learning_rate = 1e-2});

  auto data = trireme::batches(job, std::make_shared<Counting>(), {.batch = 32, .micro = 4});
  const trireme::Loss loss = trireme::token_loss();
  double last = 0;
  for (std::int64_t step = 0; step < kSteps; ++step) last = strategy.step(data.next(), loss).loss;

  std::int64_t own = 0;  // elements of this rank's weights
  for (const trireme::NamedShard& shard : strategy.state())
    if (shard.name.find('/') == std::string::npos) own += shard.local.numel();
  const std::string hash = strategy.weights_hash();
  std::printf(
      "pipeline %d x tensor %d x data %d, %s: rank %d has %.0f %% of the weights; loss %.3f; "
      "the weights are %.8s\n",
      mesh.pipeline, mesh.tensor, job.size() / mesh.pipeline / mesh.tensor, mesh.sync.c_str(),
      job.rank(), 100.0 * static_cast<double>(own) / static_cast<double>(strategy.num_parameters()),
      last, hash.c_str());
}
