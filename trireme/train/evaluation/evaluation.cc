#include "trireme/train/evaluation/evaluation.h"

namespace trireme::inline v0::train {

Evaluation evaluate(Strategy& strategy, const TrainingModel& model,
                    const std::vector<Batch>& batches) {
  std::vector<Loss> sums = {model.loss};
  if (model.correct) sums.push_back(model.correct);
  const std::vector<double> means = strategy.evaluate(batches, sums);
  Evaluation result{.loss = means[0]};
  if (model.correct) result.accuracy = means[1];
  for (const Batch& batch : batches) result.count += batch.global_count;
  return result;
}

}  // namespace trireme::inline v0::train
