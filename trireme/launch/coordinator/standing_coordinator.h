// A coordinator in its own process, for elastic jobs whose processes others start: Kubernetes,
// Slurm, people on several hosts.
//
//   trireme coordinator --elastic 2:8 --listen 0.0.0.0:29400 --store DIR
//
// Processes have the numbers 0 to max + spares - 1 and become ranks when they come. One whose
// connection breaks, or that sends no heartbeat, is lost, and the others go on. With a store the
// coordinator may be killed and started again at the same address: the ranks train meanwhile,
// reconnect, and nothing is lost (docs/design/041-standing-coordinator.md).
//
// With `alone`, workers train on their own, with servers, and come and go without effect on others.
//
// Parameter servers are numbered from 0 beside these. Another process may replace a lost one, as
// long as each shard has a copy elsewhere (docs/design/036-replicated-servers.md).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "trireme/launch/elastic_group.h"
#include "trireme/rendezvous/coordinator/state_store.h"

namespace trireme::inline v0::launch {

struct StandingOptions {
  ElasticOptions elastic;  // `restarts` does not count
  /// The number of workers that share a batch but train on their own; from elastic.min to
  /// elastic.max may be there. 0: workers train together.
  int alone = 0;
  int servers = 0;
  std::string address = "127.0.0.1";
  std::uint16_t port = 0;
  std::string job = "job", secret;
  std::shared_ptr<rendezvous::StateStore> store;  // null: the job ends with the coordinator
  /// How long the first `min` processes wait for more before the job begins. It needs all servers.
  Duration gather = std::chrono::seconds(10);
  /// How long fewer than `min` are tolerated, and ranks wait for the coordinator's return.
  Duration patience = std::chrono::minutes(10);
  std::function<void(const std::string& endpoint)> on_ready = {};
};

/// Returns the job's exit code when it has ended: 0, 130 or 143 if it was stopped, or that of its
/// first failure. Says on standard error what happens. Call it on the main thread, before other
/// threads exist. Throws ConfigError, or ResourceError if the address or store cannot be used.
int coordinate(const StandingOptions& options);

}  // namespace trireme::inline v0::launch
