// The parts of Strategy and DataParallel that differ for parallel.sync = server: an optimizer on
// the servers and, if workers train on their own, a world of one rank.
#pragma once

#include <memory>
#include <vector>

#include "trireme/models/server_embedding.h"
#include "trireme/ps/rows/row_store.h"
#include "trireme/ps/worker/remote_optimizer.h"
#include "trireme/sync/model_parts.h"
#include "trireme/sync/strategy_context.h"

namespace trireme::inline v0::parallel {

/// `env`, for a worker that trains on its own with a world of one rank. ConfigError if the job's
/// workers train on their own and these options need them together.
StrategyContext context_for(const StrategyContext& env, const std::string& sync,
                            const ServerOptions& server);
/// `env`: the job's, or context_for()'s result. ConfigError if the job has no servers, this process
/// is no worker, or `server` does not fit the job.
std::unique_ptr<ps::RemoteOptimizer> make_remote_optimizer(const StrategyContext& env,
                                                           const ServerOptions& server,
                                                           const OptimizerOptions& optimizer);
/// Null if the optimizer runs in this process.
ps::RemoteOptimizer* remote_of(optim::Optimizer& optimizer) noexcept;

/// The embeddings in a stage's blocks, or in all of a rank's, whose rows are on servers.
std::vector<models::ServerEmbedding*> embeddings_in(const Stage& stage);
std::vector<models::ServerEmbedding*> embeddings_in(const ModelParts& parts);
/// Connects embeddings to their rows: those of the optimizer's servers, or in a process without
/// servers those of a checkpoint. Call it before the optimizer is attached. Null: no embeddings.
std::shared_ptr<ps::RowStore> connect_rows(const std::vector<models::ServerEmbedding*>& embeddings,
                                           optim::Optimizer& optimizer);

}  // namespace trireme::inline v0::parallel
