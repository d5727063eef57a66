// Coordinator: the launcher's side of the control plane (gRPC, one per job).
//
// Listens on loopback by default. Another address needs a secret from the user, because ranks on
// other hosts inherit no descriptor. All methods are thread safe; callbacks run on the service's
// thread (`on_store_lost` also on a caller's) and must not block. The destructor answers every open
// call and stops.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "trireme/base/error.h"
#include "trireme/net/socket.h"
#include "trireme/rendezvous/coordinator/job_control.h"
#include "trireme/rendezvous/coordinator/state_store.h"

namespace trireme::inline v0::rendezvous {

struct CoordinatorOptions {
  Roles roles = {};
  std::string address = "127.0.0.1";
  std::uint16_t port = 0;                        // 0: the system picks one
  std::shared_ptr<net::Listener> listener = {};  // instead of a port of its own
  std::string secret;                            // at least 16 bytes
  std::string job = "job";
  /// The first epoch of a job whose workers come and go: as ranks of an elastic job, or on their
  /// own (then all workers are its members). None: all are ranks, and none may be missing.
  std::optional<Epoch> elastic = {};
  std::string version = {};  // empty: kWireVersion
  /// For jobs in which nothing else sees processes end: a rank is lost when its news stream breaks.
  bool lost_with_stream = false;
  /// Called when a rank reports its failure, before its process has ended.
  std::function<void(const Failure&)> on_failure = {};
  /// Called when a server was taken for dead and others go on without it. It may still run.
  std::function<void(int server)> on_server_lost = {};
  /// Called when a server other than the primary has all of a shard.
  std::function<void(int shard, int server)> on_new_copy = {};
  /// Called when a process has joined an elastic job.
  std::function<void(int process)> on_joined = {};
  /// Called when a process has left (CoordinatorClient::leave()).
  std::function<void(int process, int exit_code)> on_left = {};
  /// Called in an elastic job with `lost_with_stream` when a process is gone, or another one wants
  /// the place of one that has not come back. Nothing was done about it yet. Must not call the
  /// coordinator.
  std::function<void(int process, const std::string& how)> on_gone = {};
  /// The longest time between a process's heartbeats; zero: it chooses.
  Duration heartbeat = Duration::zero();
  /// Changes are saved here before others are told; the constructor continues from the saved state,
  /// unless `anew`. Processes wait `returns_within` for a coordinator that is gone.
  std::shared_ptr<StateStore> store = nullptr;
  bool anew = false;
  Duration returns_within = Duration::zero();
  /// How long the store may be full or away, while the job cannot change.
  Duration store_patience = std::chrono::minutes(10);
  /// Called when the store has failed for good. Nobody is told anything more.
  std::function<void(std::exception_ptr)> on_store_lost = {};
};

/// make(address) for all addresses of this host: of both kinds, or of IPv4 where the system has no IPv6.
auto on_all_addresses(auto make) {
  try {
    return make("::");
  } catch (const ResourceError&) {
    return make("0.0.0.0");
  }
}

/// The job as its coordinator sees it at one moment.
struct JobSnapshot {
  Epoch epoch;              // of an elastic job
  std::vector<int> joined;  // the processes that have joined
  std::vector<int>
      unreached;  // those of them that no news reach: they have not come back to this coordinator
  std::vector<int> absent;        // workers and servers of the start that have not joined
  std::map<int, int> left;        // those that have left, and their exit codes
  bool finished = false;          // finish() was called for all
  std::optional<int> ended_with;  // finish()'s exit code, if it was called
};

class Coordinator final : public JobControl {
 public:
  explicit Coordinator(CoordinatorOptions options);
  ~Coordinator() override;
  Coordinator(const Coordinator&) = delete;

  void close() override;
  const std::string& endpoint() const noexcept override;
  void set_process(int rank, pid_t pid) override;
  void end(int rank) override;
  void fail(Failure failure) override;
  void announce_failure() override;
  std::optional<Failure> first_failure() const override;
  std::optional<ServerView> lose_server(int server) override;
  bool trains_alone(int worker) const override;
  int workers_needed() const override;
  bool lose_worker(int worker) override;
  void regroup(const Epoch& epoch) override;
  bool has_met() const override;
  void forget(int process) override;
  std::vector<int> silent(Duration silence) const override;
  void request_stop(int signal) override;
  void forgive_silence() override;
  void finish() override;

  JobSnapshot snapshot() const;
  /// The job as the store had it, before any process joined.
  const JobSnapshot& found() const noexcept;
  /// `exit_code`: 130 or 143 if the training was asked to end; it is saved. `workers_only`: tells
  /// only workers on their own, which still need servers, that rank 0 has ended the training.
  void finish(int exit_code, bool workers_only = false);
  /// The job has ended: empties the store. Throws as StateStore does.
  void clear_store();
  /// A server is gone before the job has begun. Another process may join in its place.
  void reset_server(int server);
  /// True while some worker has not left or ended and has not been silent for `silence`.
  bool awaits_workers(Duration silence) const;
  /// The same for servers and the evaluator.
  bool awaits_others(Duration silence) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace trireme::inline v0::rendezvous
