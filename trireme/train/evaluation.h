// What a trained model makes of held-out samples: the figures of a validation event.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "trireme/parallel/strategy.h"
#include "trireme/train/model_family.h"

namespace trireme {
inline namespace v0 {
namespace train {

struct Evaluation {
  double loss = 0;                 // mean over `count` items
  std::optional<double> accuracy;  // share of right answers, where the model answers something
  std::int64_t count = 0;          // tokens or samples, over all ranks
};

/// One forward pass over these batches. Collective; the same bits on every rank.
Evaluation evaluate(Strategy& strategy, const TrainingModel& model,
                    const std::vector<Batch>& batches);

}  // namespace train
}  // namespace v0
}  // namespace trireme
