// What Strategy and DataParallel change for parallel.sync = server: an optimizer that is on the servers
// and, where workers train on their own, a world of one rank.
#pragma once

#include <memory>

#include "trireme/ps/remote_optimizer.h"
#include "trireme/sync/strategy_context.h"

namespace trireme::inline v0::parallel {

/// `env` itself, or that of a worker that is alone.
StrategyContext context_for(const StrategyContext& env, const std::string& sync,
                            const ServerOptions& server);
/// `env` is the job's, or what context_for() made of it. ConfigError if the job has no servers.
std::unique_ptr<ps::RemoteOptimizer> make_remote_optimizer(const StrategyContext& env,
                                                           const ServerOptions& server,
                                                           const OptimizerOptions& optimizer);
/// ParameterClient::figures(); empty if `optimizer` is not on servers.
std::string server_figures(optim::Optimizer& optimizer);

}  // namespace trireme::inline v0::parallel
