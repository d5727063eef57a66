// Workers and servers on the simulated network, for tests: ranks 0 ... W-1 are workers, servers follow.
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <functional>

#include "trireme/comm/communicator.h"
#include "trireme/comm/communicator_options.h"
#include "trireme/net/sim/sim_channels.h"
#include "trireme/ps/server/server.h"
#include "trireme/sync/strategy_context.h"

namespace trireme::inline v0::testing {

using WorkerBody = std::function<void(int worker, const parallel::StrategyContext& env)>;

inline void run_with_servers(int workers, int servers, const WorkerBody& body,
                             std::uint64_t seed = 1) {
  net::SimNetwork network(workers + servers, {.seed = seed});
  net::SimChannels channels(network, {.shared_memory = seed % 2 == 0});
  std::atomic<int> ended = 0, listening = 0;
  const auto wake_all = [&] {
    for (int rank = 0; rank < workers + servers; ++rank) network.waiter(rank)->wake();
  };
  network.run([&](int rank) {
    const auto waiter = network.waiter(rank);
    if (rank >= workers) {
      const auto acceptor = channels.listen(rank);
      ++listening;
      wake_all();
      return ps::ParameterServer(waiter, *acceptor, {.number = rank - workers}).run([&] {
        return ended == workers;
      });
    }
    waiter->wait_until([&] { return listening == servers; }, TimePoint::max());
    try {
      comm::Communicator all(network.transport(rank), {});
      std::vector<int> members(static_cast<std::size_t>(workers));
      for (int one = 0; one < workers; ++one) members[static_cast<std::size_t>(one)] = one;
      const auto world = all.subgroup(members, "workers");
      parallel::StrategyContext env{.world = world.get()};
      env.servers = {.count = servers,
                     .dial =
                         [&](int server) {
                           return channels.dial(rank, "sim:" + std::to_string(workers + server));
                         },
                     .worker = rank,
                     .workers = workers};
      body(rank, env);
    } catch (const std::exception& error) {
      ADD_FAILURE() << "worker " << rank << ", seed " << seed << ": " << error.what();
    }
    ++ended;
    wake_all();
  });
}

}  // namespace trireme::inline v0::testing
