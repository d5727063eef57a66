// SimNetwork: a group of ranks in one process whose messages take virtual time.
//
// A message of b bytes arrives after alpha + b / bytes_per_second plus a random part of `jitter`,
// never before an earlier message with its pair and tag. Messages up to kEagerBytes are copied at
// once. A larger one waits for its receive with probability 1/2, as a rendezvous would, to expose
// code that relies on buffering. Memory that the transport allocates can be mapped, as in shm;
// memory that the caller provides cannot.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "trireme/net/sim/scheduler.h"
#include "trireme/net/sim/sim_faults.h"
#include "trireme/net/transport.h"

namespace trireme::inline v0::net {

struct SimOptions {
  std::uint64_t seed = 1;
  Duration alpha = std::chrono::microseconds(2);
  double bytes_per_second = 5e9;
  Duration jitter = std::chrono::microseconds(8);
  /// False: regions cannot be mapped, as between hosts.
  bool shared_memory = true;
  /// A rank has one link: its messages leave, and arrive, one after another. Times are exact.
  bool one_link = false;
  /// Computing takes virtual time: the processor time that it took here, in parallel for all ranks.
  /// Runs are then not repeatable. Progress tasks take no time.
  bool charge_computing = false;
  SimFaults faults = {};
};
/// Options of a cluster: no shared memory, one link per rank, no jitter, computing takes time.
SimOptions cluster(Duration alpha, double bytes_per_second);

class SimNetwork {
 public:
  explicit SimNetwork(int size, SimOptions options = {});
  /// Another group of some threads of `base`, which is running: rank r is thread threads[r]. The
  /// options are those of `base`, except for the faults.
  SimNetwork(const SimNetwork& base, std::vector<int> threads, SimFaults faults);
  ~SimNetwork();

  /// Runs body(rank) on one thread per rank, one at a time, until all have returned. Then rethrows
  /// the first exception that a body threw.
  void run(const std::function<void(int rank)>& body) { scheduler_->run(body); }
  std::shared_ptr<Waiter> waiter(int rank) const;
  /// One per rank, made on that rank's thread. When it is destroyed, peers that still wait for
  /// messages from it get PeerLost.
  std::shared_ptr<Transport> transport(int rank);
  std::uint64_t trace() const noexcept { return scheduler_->random().trace(); }
  Scheduler& scheduler() const noexcept { return *scheduler_; }

  struct State;

 private:
  void schedule_breaks();

  std::shared_ptr<Scheduler> scheduler_;
  std::shared_ptr<State> state_;
};

}  // namespace trireme::inline v0::net
