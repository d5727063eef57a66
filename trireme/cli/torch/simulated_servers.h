// Workers and parameter servers as threads on a simulated network: the production code (ps/) over
// links whose times are exact. Each worker and each server has one link.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>

#include "trireme/base/waiter.h"
#include "trireme/net/channel.h"
#include "trireme/plan/tuning.h"
#include "trireme/ps/server/service.h"
#include "trireme/ps/settings.h"
#include "trireme/ps/worker/client.h"

namespace trireme::inline v0::cli {

/// Callbacks for a recording. Threads run one at a time, so they need no lock.
struct SimulatedServersObserver {
  /// May replace a server's acceptor; null keeps `acceptor`.
  std::function<std::unique_ptr<net::Acceptor>(int server, net::Acceptor& acceptor, Waiter& waiter)>
      accepts = {};
  /// Called after each update; `waiter` is the server's.
  std::function<void(Waiter& waiter, const ps::Applied& update)> updated = {};
};

/// A job whose model is one parameter of `bytes` on `servers`, which SGD updates.
ps::Settings settings_of(int workers, int servers, std::size_t bytes,
                         const ServerOptions& server = {});

/// Runs `work` for each worker once it has its first weights and gradients, which are zeros.
/// ConfigError if the settings do not go together.
void simulate_servers(
    const ps::Settings& settings, const plan::LinkCost& link, std::uint64_t seed,
    const SimulatedServersObserver& observer,
    const std::function<void(int worker, ps::ParameterClient& client, Waiter& waiter)>& work);

/// Worker 0 gives the servers their first weights; each worker pulls them and makes gradients. All
/// are zeros.
void begin_with_zeros(ps::ParameterClient& client, int worker);

/// Exchanges the gradients in client.gradient(), as RemoteOptimizer does after backward. False: the
/// servers did not use them (backup workers).
bool exchange(ps::ParameterClient& client, int worker);

}  // namespace trireme::inline v0::cli
