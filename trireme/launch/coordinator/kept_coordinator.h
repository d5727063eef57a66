// KeptCoordinator: a job's coordinator in a process of its own, which is started again when it is killed.
//
// The next process reads from a store (rendezvous/coordinator/state_store.h) what ranks rely on: who has joined, the
// epoch, the servers' copies. This object starts and watches the process, has the launcher's orders repeated
// to it (coordinator_orders.h), and keeps the port open, so that ranks which reconnect meanwhile wait. docs/design/041-standing-coordinator.md.
//
// Thread safe. Orders do not wait for the process, except those whose result is needed, or whose effect
// must be there before a process is started. They wait while it is started again or while it waits for
// the store; `interrupted` ends the wait, and then they return as if there were nothing to tell.
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
  /// It cannot be started again, or its store is lost: the job has no coordinator any more.
  std::function<void(const rendezvous::Failure&)> on_lost;
};

class KeptCoordinator final : public rendezvous::JobControl {
 public:
  /// Starts the process. Throws what it cannot begin with: ConfigError for the store, ResourceError.
  /// `options` has all callbacks, `store_patience` and `returns_within`, but neither store nor listener.
  /// The callbacks run on the thread that hears the process: they must not call the methods.
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
  bool lose_worker(int worker) override;
  void regroup(const rendezvous::Epoch& epoch) override;
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
  Event decided_;  // there is a coordinator, or there will be none
  Event closed_;
  mutable CoordinatorOrders orders_;
  // Used by the keeper's thread alone.
  pid_t pid_ = -1;
  Descriptor process_;  // pidfd
  std::string bytes_;
  bool ready_ = false;  // a process has been
  bool pinged_ = false;
  int unanswered_ = 0;  // seconds
  int soon_ = 0;        // times in a row that it ended soon after its start
  std::optional<Refusal> refusal_;
  std::optional<Refusal> lost_;  // also read by the constructor, when orders_ are given up
  TimePoint started_{}, away_since_{};
  std::thread keeper_;
};

}  // namespace trireme::inline v0::launch
