// Evaluator: forward passes that all ranks run together without gradients: the mean losses of a
// validation, and the value of one micro-batch. Not thread safe.
#pragma once

#include <deque>
#include <exception>
#include <functional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "trireme/kernel/assignment.h"
#include "trireme/pipeline/stage_runner.h"
#include "trireme/strategy/model_setup.h"
#include "trireme/sync/parameter_sync.h"
#include "trireme/sync/scalar_tree.h"

namespace trireme::inline v0::parallel {

class Evaluator {
 public:
  /// All arguments outlive it. `places` says which micro-batches each rank of the world computes.
  /// `give_up` ends the other ranks' waits after an error in the middle of a collective call.
  Evaluator(const StrategySetup& setup, ModelParts& parts, StepSync& sync, StageRunner& runner,
            const kernel::Assignment& places,
            std::function<void(const std::exception_ptr&)> give_up)
      : setup_(setup),
        parts_(parts),
        sync_(sync),
        runner_(runner),
        places_(places),
        give_up_(std::move(give_up)) {}

  struct Result {
    std::vector<double> means;
    int stop_signal = 0;  // not 0: the ranks were asked to stop, and there are no means
  };

  /// As Strategy::evaluate() and infer(). While the result of `common_weights` lives, the ranks
  /// have the weights of one model. `alone`: this rank has the whole model and needs no other.
  Result evaluate(const std::vector<Batch>& batches, const std::vector<Loss>& sums, bool until_stop,
                  const std::function<std::shared_ptr<void>()>& common_weights);
  models::Value infer(const MicroBatch& micro, bool alone);

 private:
  Device device() const { return parts_.parts().front()->store.device(); }
  std::vector<double> sums_of(const Batch& given, const std::vector<Loss>& sums,
                              std::exception_ptr& error);
  int add(std::span<const Batch> batches, const std::vector<Loss>& sums, int stop_signal,
          std::vector<double>& totals);
  void keep(const std::exception_ptr& thrown, std::exception_ptr& error);
  int conclude(std::vector<Work> works, const std::exception_ptr& error,
               const std::string& operation, int stop_signal = 0);
  std::uint32_t passes_of(std::uint32_t micro_batches) const;

  const StrategySetup& setup_;
  ModelParts& parts_;
  StepSync& sync_;
  StageRunner& runner_;
  const kernel::Assignment& places_;
  const std::function<void(const std::exception_ptr&)> give_up_;
  // By batch, then by sum. A member: after an error, reductions may still write to it.
  std::deque<ScalarTree> trees_;
};

}  // namespace trireme::inline v0::parallel
