// The figures of a validation: loss and accuracy of a model on held-out samples.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "trireme/strategy/strategy.h"
#include "trireme/train/families/model_family.h"

namespace trireme::inline v0::train {

struct Evaluation {
  double loss = 0;                 // mean over `count` items
  std::optional<double> accuracy;  // share of right answers; empty if the loss counts none
  std::int64_t count = 0;          // tokens or samples, over all ranks
};

/// Runs one forward pass over `batches`. Collective; every rank gets the same bits.
Evaluation evaluate(Strategy& strategy, const TrainingModel& model,
                    const std::vector<Batch>& batches);

}  // namespace trireme::inline v0::train
