// KeptCoordinator: a job's coordinator in a separate process, started again when it is killed.
//
// The next process reads what ranks rely on (who has joined, the epoch, the servers' copies) from a
// store (rendezvous/coordinator/state_store.h). This object starts and watches the process, repeats
// the launcher's orders to it (coordinator_orders.h), and keeps the port open, so that ranks which
// reconnect meanwhile wait. docs/design/041-standing-coordinator.md.
//
// Thread safe. Orders do not wait for the process, except those whose result is needed, or that
// must take effect before a process is started. These also wait for its restart and its store;
// `interrupted` ends the wait, and then they return as if there were nothing to tell.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "trireme/base/error.h"
#include "trireme/base/event.h"
#include "trireme/launch/coordinator/coordinator_messages.h"
#include "trireme/launch/coordinator/coordinator_orders.h"
#include "trireme/launch/hosts/sources.h"
#include "trireme/rendezvous/coordinator/job_control.h"

namespace trireme::inline v0::launch {

struct KeptOptions {
  std::vector<std::string> command;  // calls run_coordinator_process()
  std::string store;                 // address
  std::function<bool()> interrupted = [] { return false; };
  /// Called when the job has lost its coordinator: no restart is possible, or the store is lost.
  std::function<void(const rendezvous::Failure&)> on_lost;
};

class KeptCoordinator final : public rendezvous::JobControl {
 public:
  /// Starts the process. Throws ConfigError for the store, or ResourceError. `options` has all
  /// callbacks, `store_patience` and `returns_within`, but neither store nor listener. The
  /// callbacks run on the keeper's thread, and must not call the methods.
  KeptCoordinator(rendezvous::CoordinatorOptions options, KeptOptions kept);
  ~KeptCoordinator() override;
  KeptCoordinator(const KeptCoordinator&) = delete;

  void close() override;
  const std::string& endpoint() const noexcept override { return endpoint_; }
  void set_process(int rank, pid_t pid) override;
  void end(int rank) override;
  void fail(rendezvous::Failure failure) override;
  void announce_failure() override;
  std::optional<rendezvous::Failure> first_failure() const override;
  std::optional<rendezvous::ServerView> lose_server(int server) override;
  bool trains_alone(int worker) const override;
  int workers_needed() const override;
  bool lose_worker(int worker) override;
  void regroup(const rendezvous::Epoch& epoch) override;
  bool has_met() const override;
  void forget(int process) override;
  std::vector<int> silent(Duration silence) const override;
  void request_stop(int signal) override;
  void forgive_silence() override;
  void finish() override;

 private:
  struct Refusal {
    ExitCode code = ExitCode::Resource;
    std::string sentence;
    bool final = false;  // another try would not help
  };
  bool agrees(Message order) const;
  void keep();
  int start();
  void serve(int socket);
  void take(const Message& message);
  void beat();
  Exit end_process();
  bool starts_again(const Exit& exit);
  void give_up(Refusal refusal);

  CoordinatorSetup setup_;  // with the callbacks
  const KeptOptions kept_;
  std::string endpoint_;
  Event decided_;  // there is a coordinator, or there will never be one
  Event closed_;
  mutable CoordinatorOrders orders_;
  // Used by the keeper's thread alone.
  pid_t pid_ = -1;
  Descriptor process_;  // pidfd
  std::string bytes_;
  bool ready_ = false;  // some process has been ready
  bool pinged_ = false;
  int unanswered_ = 0;  // seconds
  int soon_ = 0;        // times in a row that it ended soon after its start
  std::optional<Refusal> refusal_;
  std::optional<Refusal> lost_;  // also read by the constructor, when orders_ are given up
  TimePoint started_{}, away_since_{};
  std::thread keeper_;
};

}  // namespace trireme::inline v0::launch
