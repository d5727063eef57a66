// Forward passes of a run's model: for validations, eval, generate, inspect and the evaluator.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "trireme/strategy/strategy.h"
#include "trireme/train/config/schema.h"

namespace trireme::inline v0::train {

/// The run's options for forward passes of one process on `device`, with the whole model and without
/// recomputation and servers. Optimizer state stays in its mapped file, or in the host's memory.
StrategyOptions forward_options(StrategyOptions options, Device device = {});
/// Loads the newest checkpoint of a folder, and uses its averaged weights if it has some. Returns
/// its step; 0: there is none. CheckpointError if it is damaged.
long load_newest(Job& job, Strategy& strategy, const std::string& checkpoints);
/// `samples` held-out samples, or a few more to fill the last batch, spread evenly.
std::vector<Batch> held_out_batches(const Job& job, const Settings& settings,
                                    const Dataset& validation, std::int64_t samples);

/// The figures of a validation.
struct Evaluation {
  double loss = 0;                 // mean over `count` items
  std::optional<double> accuracy;  // share of right answers; empty if the loss counts none
  std::int64_t count = 0;          // tokens or samples, over all ranks
};

/// Runs one forward pass over `batches`. Collective; every rank gets the same bits. nullopt if
/// `until_stop` and the ranks are asked to stop (Strategy::evaluate()).
std::optional<Evaluation> evaluate(Strategy& strategy, const TrainingModel& model,
                                   const std::vector<Batch>& batches, bool until_stop = false);

}  // namespace trireme::inline v0::train
