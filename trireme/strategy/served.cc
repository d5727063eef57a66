#include "trireme/strategy/served.h"

#include <algorithm>

#include "trireme/base/error.h"
#include "trireme/comm/communicator_options.h"
#include "trireme/models/module_block.h"
#include "trireme/net/alone_transport.h"
#include "trireme/ps/rows/local_rows.h"
#include "trireme/ps/settings.h"
#include "trireme/sync/sync_plan.h"

namespace trireme::inline v0::parallel {
namespace {

// The last parts of the names of state tensors: "exp_avg" of "layer.0.weight.exp_avg".
std::vector<std::string> kinds_of_state(optim::Optimizer& optimizer) {
  std::vector<std::string> kinds;
  for (const NamedShard& shard : optimizer.state()) {
    std::string kind = shard.name.substr(shard.name.rfind('.') + 1);
    if (std::find(kinds.begin(), kinds.end(), kind) == kinds.end()) kinds.push_back(kind);
  }
  return kinds;
}

}  // namespace

StrategyContext context_for(const StrategyContext& env, const std::string& sync,
                            const ServerOptions& server) {
  StrategyContext own = env;
  if (!is_served(sync) || !server.alone()) {
    if (env.servers.on_its_own)
      throw ConfigError(
          "the workers of this job train on their own, but these options need workers that train "
          "together",
          {.rank = env.servers.worker,
           .operation = "strategy",
           .advice = "Give parallel.sync = \"server\" a staleness other than 0, or "
                     "start `trireme coordinator` without --workers."});
    return own;
  }
  own.own_world = std::make_shared<comm::Communicator>(
      std::make_shared<net::AloneTransport>(env.world->waiter()),
      comm::CommunicatorOptions{.name = "worker",
                                .host_of_rank = {env.host},
                                .world_ranks = {env.servers.worker},
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
  if (!servers.other_role.empty())
    throw ConfigError(
        servers.other_role + " cannot train with parallel.sync = \"server\": only workers do",
        {.operation = "strategy",
         .advice = "Ask job.role() first: a Role::Server calls trireme::serve(job), "
                   "and only a Role::Worker or Role::Chief trains."});
  if (servers.count < 1)
    throw ConfigError("parallel.sync = \"server\" needs servers, but the job has none",
                      {.rank = env.rank(),
                       .operation = "strategy",
                       .advice = "Start some: `trireme launch --workers 4 --servers 2`, or "
                                 "server.count under `trireme train`."});
  ps::check_server_options(server, servers.workers, servers.count);
  optim::check_numbers(optimizer);
  if (server.alone() && servers.elastic)
    throw ConfigError(
        "workers that train on their own cannot be in an elastic job",
        {.rank = env.rank(),
         .operation = "strategy",
         .advice = "Start `trireme coordinator` with --workers. `trireme train` and `trireme "
                   "launch` start such a worker again without --elastic."});
  const int needed = server.backup > 0 ? servers.workers - server.backup : 1;
  if (!servers.elastic) servers.train_alone(server.alone() ? needed : 0);
  return std::make_unique<ps::RemoteOptimizer>(optimizer, server, env.world->waiter(), servers);
}

ps::RemoteOptimizer* remote_of(optim::Optimizer& optimizer) noexcept {
  return dynamic_cast<ps::RemoteOptimizer*>(&optimizer);
}

std::vector<models::ServerEmbedding*> embeddings_in(const Stage& stage) {
  std::vector<models::ServerEmbedding*> all;
  for (const Stage::Member& member : stage.members()) {
    const auto own = models::embeddings_of(member.block);
    all.insert(all.end(), own.begin(), own.end());
  }
  return all;
}

std::vector<models::ServerEmbedding*> embeddings_in(const ModelParts& parts) {
  std::vector<models::ServerEmbedding*> all;
  for (const auto& part : parts.parts()) {
    const auto own = embeddings_in(part->blocks);
    all.insert(all.end(), own.begin(), own.end());
  }
  return all;
}

std::shared_ptr<ps::RowStore> connect_rows(const std::vector<models::ServerEmbedding*>& embeddings,
                                           optim::Optimizer& optimizer) {
  if (embeddings.empty()) return nullptr;
  std::vector<ps::ServedTable> tables = ps::tables_of(embeddings);
  std::shared_ptr<ps::RowStore> store;
  if (auto* remote = remote_of(optimizer)) {
    store = remote->set_tables(std::move(tables));
  } else {
    store = std::make_shared<ps::LocalRows>(
        std::move(tables),
        ps::RowStore::Options{.state_names = [own = &optimizer] { return kinds_of_state(*own); }});
  }
  ps::connect(embeddings, store);
  return store;
}

}  // namespace trireme::inline v0::parallel
