// CoordinatorKeeper: keeps the process of a job's coordinator running. On a thread of its own it
// starts the process, asks whether it is alive, passes its news on, and starts the next one when it
// has ended. It keeps the coordinator's port open, so that ranks which reconnect meanwhile wait.
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

namespace trireme::inline v0::launch {

struct KeptOptions {
  std::vector<std::string> command;  // calls run_coordinator_process()
  std::string store;                 // address
  std::function<bool()> interrupted = [] { return false; };
  /// Called when the job has lost its coordinator: no restart is possible, or the store is lost.
  std::function<void(const rendezvous::Failure&)> on_lost;
};

class CoordinatorKeeper {
 public:
  /// Starts the process. Throws ConfigError for the store, or ResourceError. `options` has all
  /// callbacks, `store_patience` and `returns_within`, but neither store nor listener. The
  /// callbacks run on the keeper's thread. `orders` go to each process, and must outlive the keeper.
  CoordinatorKeeper(rendezvous::CoordinatorOptions options, KeptOptions kept,
                    CoordinatorOrders& orders);
  ~CoordinatorKeeper() { close(); }
  CoordinatorKeeper(const CoordinatorKeeper&) = delete;

  /// Ends the process and the thread.
  void close();
  const std::string& endpoint() const noexcept { return endpoint_; }

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
  void give_up();

  CoordinatorSetup setup_;  // with the callbacks
  const KeptOptions kept_;
  CoordinatorOrders& orders_;
  std::string endpoint_;
  Event decided_;  // there is a coordinator, or there will never be one
  Event closed_;
  // Used by the keeper's thread alone.
  pid_t pid_ = -1;
  Descriptor process_;  // pidfd
  std::string bytes_;
  bool ready_ = false;  // some process has been ready
  bool pinged_ = false;
  int unanswered_ = 0;              // seconds
  int soon_ = 0;                    // times in a row that it ended soon after its start
  std::optional<Refusal> refusal_;  // also read by the constructor, when the thread has ended
  TimePoint started_{}, away_since_{};
  std::thread keeper_;
};

}  // namespace trireme::inline v0::launch
