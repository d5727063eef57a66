#include "trireme/strategy/served.h"

#include "trireme/base/error.h"
#include "trireme/net/alone_transport.h"
#include "trireme/sync/sync_plan.h"

namespace trireme::inline v0::parallel {

StrategyContext context_for(const StrategyContext& env, const std::string& sync,
                            const ServerOptions& server) {
  StrategyContext own = env;
  if (!is_served(sync) || !server.alone()) return own;
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

std::unique_ptr<ps::RemoteOptimizer> make_remote_optimizer(const StrategyContext& env,
                                                           const ServerOptions& server,
                                                           const OptimizerOptions& optimizer) {
  const StrategyContext::Servers& servers = env.servers;
  if (servers.count < 1)
    throw ConfigError("parallel.sync = \"server\" in a job without servers",
                      {.rank = env.world->rank(),
                       .operation = "strategy",
                       .advice = "Start some: `trireme launch --workers 4 --servers 2`, or "
                                 "server.count under `trireme train`."});
  check_server_options(server, servers.workers, servers.count);
  if (server.alone()) servers.train_alone();
  return std::make_unique<ps::RemoteOptimizer>(optimizer,
                                               ps::RemoteOptions{.worker = servers.worker,
                                                                 .workers = servers.workers,
                                                                 .servers = servers.count,
                                                                 .server = server,
                                                                 .waiter = env.world->waiter(),
                                                                 .dial = servers.dial,
                                                                 .term = servers.term});
}

}  // namespace trireme::inline v0::parallel
