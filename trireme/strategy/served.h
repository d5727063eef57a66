// The parts of Strategy and DataParallel that differ for parallel.sync = server: an optimizer that is
// on the servers and, if workers train on their own, a world of one rank.
#pragma once

#include <memory>
#include <vector>

#include "trireme/models/server_embedding.h"
#include "trireme/ps/rows/row_store.h"
#include "trireme/ps/worker/remote_optimizer.h"
#include "trireme/sync/model_parts.h"
#include "trireme/sync/strategy_context.h"

namespace trireme::inline v0::parallel {

/// `env` itself, or that of a worker that is alone.
StrategyContext context_for(const StrategyContext& env, const std::string& sync,
                            const ServerOptions& server);
/// `env` is the job's, or what context_for() made of it. ConfigError if the job has no servers.
std::unique_ptr<ps::RemoteOptimizer> make_remote_optimizer(const StrategyContext& env,
                                                           const ServerOptions& server,
                                                           const OptimizerOptions& optimizer);
/// Null if the optimizer runs in this process.
ps::RemoteOptimizer* remote_of(optim::Optimizer& optimizer) noexcept;

/// The embeddings in a stage's blocks, or in all of a rank's, whose rows are on servers.
std::vector<models::ServerEmbedding*> embeddings_in(const Stage& stage);
std::vector<models::ServerEmbedding*> embeddings_in(const ModelParts& parts);
/// Connects embeddings to their rows, before the optimizer is attached: to those of its servers, or in a
/// process without servers to those of a checkpoint. Null: there are no embeddings.
std::shared_ptr<ps::RowStore> connect_rows(const std::vector<models::ServerEmbedding*>& embeddings,
                                           optim::Optimizer& optimizer);

}  // namespace trireme::inline v0::parallel
