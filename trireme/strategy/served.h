// What a Strategy changes for parallel.sync = server: an optimizer that is on the servers and, where
// workers train on their own, a world of one rank.
#pragma once

#include <memory>

#include "trireme/strategy/strategy.h"
#include "trireme/sync/strategy_context.h"

namespace trireme::inline v0::parallel {

/// `env` itself, or that of a worker that is alone.
StrategyContext context_for(const StrategyContext& env, const StrategyOptions& options);
/// `env` is the job's. ConfigError if the job has no servers.
std::unique_ptr<optim::Optimizer> make_optimizer_for(const StrategyContext& env,
                                                     const StrategyOptions& options,
                                                     const OptimizerOptions& optimizer);

}  // namespace trireme::inline v0::parallel
