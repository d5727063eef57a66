// CallWaits: the user's waits for an engine's calls. It decides what happens when a wait reaches
// its deadline, and counts the time spent in waits. Thread safe.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <string>

#include "trireme/base/work.h"
#include "trireme/base/work_source.h"
#include "trireme/comm/communicator.h"
#include "trireme/comm/communicator_options.h"

namespace trireme::inline v0::comm {

class Engine;
struct Operation;

/// The names of a call in errors.
struct CallNames {
  std::string operation, label;  // "all_reduce", "bucket 2"
  int peer = -1;                 // of a message, by its rank in the group; -1: a collective
};
/// Call it before Messages::run(), which replaces a message's peer by its tag.
CallNames names_of(const Operation& operation);

/// "1.5 s".
std::string seconds_text(Duration duration);

class CallWaits final : public WorkOwner {
 public:
  explicit CallWaits(Engine& engine) : engine_(engine) {}

  /// Time that user threads have spent blocked.
  Duration time() const noexcept { return Duration(time_.load()); }
  /// The number of user threads that are blocked.
  int blocked() const noexcept { return blocked_.load(std::memory_order_relaxed); }
  void set_running(CallNames call);

  // WorkOwner:
  Deadline timeout() const noexcept override;
  TimePoint on_deadline(TimePoint now, Duration waited) override;
  void on_unseen_failure(std::exception_ptr error) noexcept override;
  void on_wait_begin(std::string_view description) noexcept override;
  void on_wait_end(std::string_view description, Duration waited) noexcept override;

  /// on_deadline() for a call that need not be the running one.
  TimePoint on_deadline_of(const CallNames& call, TimePoint now, Duration waited);
  /// The error of a call that has waited so long. Progress context.
  std::exception_ptr timeout_error(Duration waited, const PeerWatch::Verdict& verdict,
                                   const CallNames& call) const;

 private:
  bool owes(int peer, const CallNames& call) const;

  Engine& engine_;
  std::mutex mutex_;  // running_
  CallNames running_;
  std::atomic<std::int64_t> time_{0};
  std::atomic<int> blocked_{0};
};

}  // namespace trireme::inline v0::comm
