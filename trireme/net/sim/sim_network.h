// SimNetwork: a group of ranks in one process whose messages take virtual time.
//
// A message of b bytes arrives after alpha + b / bytes_per_second plus a seeded part of `jitter`,
// never before an earlier one of its (pair, tag). Messages up to kEagerBytes are copied at once;
// a larger one waits for its receive with even chance (as a rendezvous would), so that code which
// relies on buffering is found out. Regions that the transport provides are mapped directly, as
// shm does; memory that a caller brings is not.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "trireme/net/sim/scheduler.h"
#include "trireme/net/sim/sim_faults.h"
#include "trireme/net/transport.h"

namespace trireme {
inline namespace v0 {
namespace net {

struct SimOptions {
  std::uint64_t seed = 1;
  Duration alpha = std::chrono::microseconds(2);
  double bytes_per_second = 5e9;
  Duration jitter = std::chrono::microseconds(8);
  /// False: as between hosts; regions cannot be mapped.
  bool shared_memory = true;
  /// A rank's messages leave, and arrive, one after another: its link is one. Times are exact.
  bool one_link = false;
  /// What a rank computes takes the processor time that it took here, all ranks side by side on the
  /// virtual clock. Then no two runs are alike. (What progress tasks do takes none.)
  bool charge_computing = false;
  SimFaults faults = {};
};
/// A cluster's: no shared memory, one link a rank, no jitter, and computing takes time.
SimOptions cluster(Duration alpha, double bytes_per_second);

class SimNetwork {
 public:
  explicit SimNetwork(int size, SimOptions options = {});
  ~SimNetwork();

  /// Runs body(rank) on one thread per rank, one at a time, until all have returned.
  void run(const std::function<void(int rank)>& body) { scheduler_->run(body); }
  std::shared_ptr<Waiter> waiter(int rank) const;
  /// One per rank, made by that rank's thread. When it is destroyed, peers that still expect
  /// something from it get PeerLost.
  std::shared_ptr<Transport> transport(int rank);
  std::uint64_t trace() const noexcept { return scheduler_->trace(); }

  struct State;

 private:
  std::shared_ptr<Scheduler> scheduler_;
  std::shared_ptr<State> state_;
};

}  // namespace net
}  // namespace v0
}  // namespace trireme
