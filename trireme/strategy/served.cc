#include "trireme/strategy/served.h"

#include "trireme/base/error.h"
#include "trireme/net/alone_transport.h"
#include "trireme/ps/remote_optimizer.h"
#include "trireme/sync/sync_plan.h"

namespace trireme::inline v0::parallel {

StrategyContext context_for(const StrategyContext& env, const StrategyOptions& options) {
  StrategyContext own = env;
  if (!is_served(options.sync) || !options.server.alone()) return own;
  own.own_world = std::make_shared<comm::Communicator>(
      std::make_shared<net::AloneTransport>(env.world->waiter()),
      comm::CommunicatorOptions{.name = "worker",
                                .host_of_rank = {env.host},
                                .world_ranks = {env.world->rank()},
                                .reproducible = env.reproducible,
                                .trace = env.trace});
  own.world = own.own_world.get();
  own.local_size = 1;
  return own;
}

std::unique_ptr<optim::Optimizer> make_optimizer_for(const StrategyContext& env,
                                                     const StrategyOptions& options,
                                                     const OptimizerOptions& optimizer) {
  if (!is_served(options.sync)) return optim::make_optimizer(optimizer);
  const StrategyContext::Servers& servers = env.servers;
  check_server_options(options.server, servers.workers);
  if (servers.count < 1)
    throw ConfigError("parallel.sync = \"server\" in a job without servers",
                      {.rank = env.world->rank(),
                       .operation = "strategy",
                       .advice = "Start some: `trireme launch --workers 4 --servers 2`, or "
                                 "server.count under `trireme train`."});
  return std::make_unique<ps::RemoteOptimizer>(optimizer,
                                               ps::RemoteOptions{.worker = servers.worker,
                                                                 .workers = servers.workers,
                                                                 .servers = servers.count,
                                                                 .server = options.server,
                                                                 .waiter = env.world->waiter(),
                                                                 .dial = servers.dial});
}

}  // namespace trireme::inline v0::parallel
