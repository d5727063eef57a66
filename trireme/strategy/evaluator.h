// Evaluator: forward passes of all ranks together, without a gradient: a validation's mean losses,
// and the value of one micro-batch. Not thread safe.
#pragma once

#include <exception>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "trireme/kernel/assignment.h"
#include "trireme/pipeline/stage_runner.h"
#include "trireme/strategy/layer_group.h"
#include "trireme/strategy/strategy.h"
#include "trireme/sync/parameter_sync.h"
#include "trireme/sync/sync_plan.h"

namespace trireme::inline v0::parallel {

struct EvaluatorParts {
  const Grid& grid;
  const SyncPlan& plan;
  const LayerGroup& layers;
  ModelParts& parts;
  StepSync& sync;
  StageRunner& runner;
  const kernel::Assignment& places;  // of the world's ranks
  /// Ends the other ranks' waits after an error in the middle of a collective call.
  std::function<void(const std::exception_ptr&)> give_up;
};

class Evaluator {
 public:
  /// `env` and what `parts` refers to outlive it.
  Evaluator(const StrategyContext& env, EvaluatorParts parts)
      : env_(env), parts_(std::move(parts)) {}

  /// As Strategy::evaluate() and infer(). While the result of `common_weights` lives, the ranks
  /// have the weights of one model. `alone`: this rank has all that it needs.
  std::vector<double> evaluate(const std::vector<Batch>& batches, const std::vector<Loss>& sums,
                               const std::function<std::shared_ptr<void>()>& common_weights);
  models::Value infer(const MicroBatch& micro, bool alone);

 private:
  Device device() const { return parts_.parts.parts().front()->store.device(); }
  std::vector<double> sums_of(const Batch& given, const std::vector<Loss>& sums,
                              std::exception_ptr& error);
  void keep(const std::exception_ptr& thrown, std::exception_ptr& error);
  void conclude(std::vector<Work> works, const std::exception_ptr& error,
                const std::string& operation);
  std::uint32_t passes_of(std::uint32_t micro_batches) const;

  const StrategyContext& env_;
  EvaluatorParts parts_;
};

}  // namespace trireme::inline v0::parallel
