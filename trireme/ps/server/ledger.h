// Ledger: which worker is here, which push of which worker was applied, and who has to wait for
// whom. Pure bookkeeping: no time, no network. Not thread safe.
//
// A worker's pushes have the sequence numbers 1, 2, ..., whatever process is the worker at the
// moment; each is applied once. Its clock counts its pushes, from the slowest worker's clock when
// it came. It sends its clock, so that all servers have the same one and the slowest worker waits
// at none. Bounded staleness (Ho et al. 2013, "More effective distributed ML via a stale
// synchronous parallel parameter server") lets a worker begin its next step while its clock is at
// most s ahead of the slowest.
#pragma once

#include <cstdint>
#include <map>
#include <utility>

namespace trireme::inline v0::ps {

class Ledger {
 public:
  /// `staleness`: as in ServerOptions.
  explicit Ledger(std::int64_t staleness) : bound_(staleness) {}

  struct Worker {
    int client = -1;         // its connection; -1: it is not here
    std::uint64_t last = 0;  // sequence number of its last push
    std::int64_t clock = 0;
    std::int64_t pushes = 0;   // applied
    std::int64_t dropped = 0;  // not finite
    std::int64_t late = 0;     // synchronous rounds that were complete without it
    std::int64_t repeated = 0;
    std::int64_t last_late = -1;  // the last such round
  };

  void arrive(int worker, int client);
  void leave(int worker);
  /// The connection has ended.
  void lost(int client);
  /// Whether this push is new. It then counts as seen, applied or not.
  bool take(int worker, std::uint64_t sequence, std::int64_t clock);
  /// After take(): it was applied. `staleness`: updates by others since the weights that it used.
  void applied(int worker, std::int64_t staleness);
  void dropped(int worker) { ++workers_[worker].dropped; }
  /// This synchronous round was complete without the worker's gradient. Repetitions do not count.
  void late(int worker, std::int64_t round);
  /// Whether the worker may begin its next step.
  bool may_go_on(int worker) const {
    return bound_ < 0 || workers_.at(worker).clock - slowest_ <= bound_;
  }

  /// Takes over the content of another ledger with the same bound.
  void restore(std::map<int, Worker> workers, std::map<std::int64_t, std::int64_t> histogram) {
    workers_ = std::move(workers);
    histogram_ = std::move(histogram);
    find_slowest();
  }

  /// A worker's connection, or -1.
  int client_of(int worker) const {
    const auto found = workers_.find(worker);
    return found == workers_.end() ? -1 : found->second.client;
  }
  const std::map<int, Worker>& workers() const noexcept { return workers_; }
  /// The least clock of a worker that is here; 0 if none is.
  std::int64_t slowest() const noexcept { return slowest_; }
  /// How many pushes had each staleness.
  const std::map<std::int64_t, std::int64_t>& histogram() const noexcept { return histogram_; }

 private:
  void find_slowest();

  const std::int64_t bound_;
  std::int64_t slowest_ = 0;  // kept, because each of many workers that wait asks for it
  std::map<int, Worker> workers_;
  std::map<std::int64_t, std::int64_t> histogram_;
};

}  // namespace trireme::inline v0::ps
