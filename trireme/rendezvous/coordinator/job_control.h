// JobControl: a launcher's orders and questions to its job's coordinator, which is in the same
// process (coordinator.h) or in a separate one (launch/coordinator/kept_coordinator.h).
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "trireme/rendezvous/epoch.h"
#include "trireme/rendezvous/membership.h"
#include "trireme/rendezvous/server_view.h"

namespace trireme::inline v0::rendezvous {

class JobControl {
 public:
  virtual ~JobControl() = default;
  /// Stops, and answers every open call. No callback follows; the methods may still be called.
  virtual void close() = 0;

  /// "127.0.0.1:40123", "[::1]:40123".
  virtual const std::string& endpoint() const noexcept = 0;
  virtual void set_process(int rank, pid_t pid) = 0;
  /// The process of `rank` has ended: calls that wait for it fail.
  virtual void end(int rank) = 0;
  /// Records a failure. Unless another failure caused it, tells all ranks at once.
  virtual void fail(Failure failure) = 0;
  /// Tells all ranks the first failure, even a secondary one, which fail() does not announce.
  virtual void announce_failure() = 0;
  virtual std::optional<Failure> first_failure() const = 0;
  /// The process of a server has ended. If every shard has another copy, tells all which server
  /// serves it now; a new process may join as this server. Otherwise nullopt, without effect.
  virtual std::optional<ServerView> lose_server(int server) = 0;
  /// Whether the worker has said that it trains on its own.
  virtual bool trains_alone(int worker) const = 0;
  /// How many workers that train on their own the servers wait for in a step: 1, or all but the
  /// backup workers.
  virtual int workers_needed() const = 0;
  /// The process of a worker has ended. If nobody waits for it, because it trains on its own, a new
  /// process may join in its place. False otherwise, without effect.
  virtual bool lose_worker(int worker) = 0;
  /// In an elastic job: the ranks are now those of `epoch`. All processes are told; exchanges of
  /// earlier ranks fail.
  virtual void regroup(const Epoch& epoch) = 0;
  /// In an elastic job: whether all ranks of the latest epoch have entered it, and so have ended
  /// every step of the epochs before.
  virtual bool has_met() const = 0;
  /// In an elastic job: the process has ended, and a new one may join in its place.
  virtual void forget(int process) = 0;
  /// Ranks and servers that have sent no heartbeat for `silence`, though they are not stopped.
  virtual std::vector<int> silent(Duration silence) const = 0;
  /// `signal` is 2 or 15: every rank's stop_signal() becomes 130 or 143.
  virtual void request_stop(int signal) = 0;
  /// This process was stopped for a while: no rank counts as silent for that time.
  virtual void forgive_silence() = 0;
  /// All workers have ended: tells servers and the evaluator to end, too.
  virtual void finish() = 0;
};

}  // namespace trireme::inline v0::rendezvous
