// TrainedModule: a user's module and optimizer as DataParallel trains them. Under plain every rank
// updates the parameters in place. Under ZeRO they move into one piece of memory, and the optimizer
// gets this rank's shards of them.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "trireme/ps/rows/row_store.h"
#include "trireme/ps/worker/remote_optimizer.h"
#include "trireme/strategy/module_tensors.h"
#include "trireme/sync/compression/compression_state.h"
#include "trireme/sync/gathers/parameter_store.h"
#include "trireme/sync/levels/optimizer_shards.h"
#include "trireme/sync/parameter_sync.h"
#include "trireme/sync/strategy_context.h"
#include "trireme/sync/sync_plan.h"
#include "trireme/sync/sync_setup.h"

namespace trireme::inline v0::parallel {

class TrainedModule {
 public:
  /// Collective. `barrier` is called before the first bucket of a step. Keeps references to all but
  /// the options. ConfigError if it cannot be trained with these options; MismatchError if ranks
  /// have other models, processors, options or optimizers.
  TrainedModule(const StrategyContext& env, torch::nn::Module& module,
                torch::optim::Optimizer& optimizer, const DataParallelOptions& options,
                const std::function<Work()>& barrier);
  ~TrainedModule();
  TrainedModule(const TrainedModule&) = delete;

  const ModuleTensors& tensors() const noexcept { return tensors_; }
  const SyncPlan& plan() const noexcept { return plan_; }
  /// SHA-256 over parameters, buffers and rows of embeddings.
  std::string weights_hash();
  ParameterSync& sync() noexcept { return *sync_; }
  CompressionState& compression() noexcept { return compression_; }
  torch::optim::Optimizer& optimizer() const noexcept { return optimizer_; }
  /// Updates since the start of the training.
  std::int64_t steps() const noexcept { return steps_; }
  /// Embeddings with rows on servers, whose gradients do not come through the parameters' hooks.
  bool has_rows() const noexcept { return !embeddings_.empty(); }

  /// The optimizer on servers; null if this process updates.
  ps::RemoteOptimizer* remote() noexcept { return remote_.get(); }
  /// As optim::Optimizer::settle(). state() and weights_hash() call it.
  void settle() {
    if (remote_) remote_->settle();
  }
  /// Multiplies the summed gradients by `scale` and lets the optimizer update what this rank owns.
  void update(double scale);
  /// From now on notices if the user calls step() of the optimizer, which is then refused.
  void watch() {
    if (shards_) shards_->watch();
  }
  void refuse_direct_call() const {
    if (shards_) shards_->refuse_direct_call(sync_name_, env_.world->rank(), env_.host);
  }

  /// Parameters, buffers and the optimizer's state. They share memory with the module.
  std::vector<NamedShard> state();
  std::vector<NamedShard> own_state();
  /// Updates that the optimizer has counted; on a rank that owns nothing, steps().
  std::int64_t optimizer_updates();
  void restored(std::int64_t steps, std::int64_t optimizer_updates);
  /// How long this rank has waited for others, since the start.
  Duration time_waited() const;

 private:
  std::unique_ptr<ParameterSync> make_sync(const DataParallelOptions& options,
                                           const std::function<Work()>& barrier);
  std::unique_ptr<ParameterSync> make_plain(const PlainSyncOptions& options);
  std::unique_ptr<ParameterSync> make_sharded(const PlainSyncOptions& options);
  std::unique_ptr<ParameterSync> make_served(const PlainSyncOptions& options,
                                             const ServerOptions& server);
  void move_into_store();
  at::Tensor updated(std::size_t i);

  const StrategyContext& env_;
  torch::optim::Optimizer& optimizer_;
  const std::string sync_name_;
  const std::vector<models::ServerEmbedding*> embeddings_;
  const ModuleTensors tensors_;
  const Device device_;  // of the parameters
  const SyncPlan plan_;
  std::optional<ParameterStore> store_;          // under ZeRO and with servers
  std::optional<OptimizerShards> shards_;        // under ZeRO
  ShardGroups groups_;                           // under ZeRO
  std::unique_ptr<ps::RemoteOptimizer> remote_;  // with servers; owned() is whole
  std::shared_ptr<ps::RowStore> rows_;           // of embeddings on servers; null: none
  std::unique_ptr<ParameterSync> sync_;
  CompressionState compression_;
  std::int64_t steps_ = 0;
  // Slices whose state own_state() made before the first update; the optimizer makes its own there.
  std::set<std::size_t> made_;
};

}  // namespace trireme::inline v0::parallel
