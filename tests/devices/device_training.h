// Trains a small model for a few steps on any number of simulated ranks, each with a device of its
// own, and says what came out.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "trireme/models/block.h"
#include "trireme/strategy/strategy.h"

namespace trireme::devices {

/// A model, its micro-batches and its loss.
struct Task {
  std::string name;
  std::function<models::Blocks(const std::string& precision)> model;
  std::function<MicroBatch(std::int64_t step, std::uint32_t index)> micro_batch;
  Loss loss;
};
/// An MLP, a GPT with dropout, the same with experts, a BERT and a ResNet with batch norm.
const std::vector<Task>& tasks();
const Task& task(const std::string& name);

struct Training {
  int ranks = 1;    // with options.lanes only 1, which then is no simulated one
  int servers = 0;  // beside them, for options.sync = "server"
  int steps = 3;
  std::uint32_t total = 6;  // micro-batches of a global batch
  StrategyOptions options = {};
  bool on_device = false;  // rank r on emulated:r; else on the CPU by LibTorch's operations
  int first_device = 0, devices = 4;  // that ranks share in turn
  OptimizerOptions optimizer = AdamW{.learning_rate = 1e-2};
  std::uint64_t seed = 1;  // of the simulated network
};

struct Outcome {
  std::string hash, average;  // of the weights; of their average (options.ema)
  std::vector<double> losses, norms, noise_scales;
  double validation = 0;
  friend bool operator==(const Outcome&, const Outcome&) = default;
};

/// Rank 0's outcome; the other ranks' are equal, or the test fails.
Outcome train(const Task& task, const Training& training);

/// Waits of a stream for an event that were left out one at a time, about `most` of the training's.
struct WaitsLeftOut {
  std::uint64_t waits = 0;     // of the training
  int tried = 0, noticed = 0;  // noticed: reported as a race; a wait may be there twice over
};
/// The test fails if one changes a bit and is not noticed.
WaitsLeftOut leave_waits_out(const Task& task, const Training& training, std::uint64_t most);

}  // namespace trireme::devices
