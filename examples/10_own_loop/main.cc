// Your own loop with the output of `trireme train`: a progress line, events.jsonl, a file for
// TensorBoard, a plot at the end. If it is killed, the next start continues at the checkpoint.
//
//     own_loop FOLDER
#include <torch/torch.h>

#include <cstdio>

#include "trireme/trireme.h"

namespace {

constexpr std::int64_t kWidth = 16, kSteps = 40;

// [data]
// Sample i is a function of i: its targets are its features, reversed.
struct Reversed : trireme::Dataset {
  std::int64_t size() const override { return 512; }
  std::int64_t count_items(std::span<const std::int64_t> samples) const override {
    return static_cast<std::int64_t>(samples.size());
  }
  trireme::input::Fields read(std::span<const std::int64_t> samples) const override {
    std::vector<torch::Tensor> rows;
    for (const std::int64_t i : samples)
      rows.push_back(torch::cos(torch::arange(kWidth) * (0.01 * static_cast<double>(i + 1))));
    const torch::Tensor features = torch::stack(rows);
    return {{"tokens", features}, {"targets", features.flip(1)}};
  }
};
// [/data]

}  // namespace

int main(int argc, char** argv) {
  trireme::Job job(argc, argv);
  if (argc < 2) return std::fprintf(stderr, "own_loop FOLDER\n"), 2;
  const std::string folder = argv[1];

  // [model]
  trireme::Blocks net;
  net.add("in",
          [] { return torch::nn::Sequential(torch::nn::Linear(kWidth, 64), torch::nn::GELU()); });
  net.add("out", [] { return torch::nn::Linear(64, kWidth); });
  trireme::Strategy strategy(job, net, {.clip = 1}, trireme::AdamW{.learning_rate = 1e-2});
  // [/model]

  // [batches]
  const auto data = std::make_shared<Reversed>();
  auto input = trireme::batches(job, data, {.batch = 64, .micro = 8, .steps = kSteps});
  const auto held_out = trireme::fixed_batches(job, *data, 64, 8, 2);
  // [/batches]

  // [loss]
  const trireme::Loss squares = [](const auto& output, const trireme::MicroBatch& micro) {
    return (output.at(0) - micro.field("targets")).pow(2).sum();
  };
  // [/loss]

  // [checkpoint]
  trireme::Checkpointer checkpointer(job, folder + "/checkpoint", {.every = 20});
  checkpointer.add("train", strategy).add("data", input);
  // [/checkpoint]
  // [log]
  trireme::Log log(
      job, folder,
      {.steps = kSteps, .first = checkpointer.resume(), .items = "samples", .input = &input});
  for (auto& batch : input) {
    const trireme::StepResult result = strategy.step(batch, squares);
    log.step(result);
    if (result.stop_signal != 0) log.finish();  // SIGTERM, SIGUSR1 …: after() saves and ends it
    checkpointer.after(input.position() - 1);
    if (input.position() % 20 == 0) log.validation(strategy.evaluate(held_out, squares), 128);
  }
  // [/log]
}
