// CallWaits: the user's waits for an engine's calls. It decides what happens when one reaches its
// deadline, and counts the time spent in them. Thread safe.
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

class CallWaits final : public WorkOwner {
 public:
  explicit CallWaits(Engine& engine) : engine_(engine) {}

  /// Time that user threads have spent blocked.
  Duration time() const noexcept { return Duration(time_.load()); }
  /// How many user threads are blocked.
  int blocked() const noexcept { return blocked_.load(std::memory_order_relaxed); }
  /// The name of the running call in errors.
  void set_running(std::string title);

  // WorkOwner:
  Deadline timeout() const noexcept override;
  TimePoint on_deadline(TimePoint now, Duration waited) override;
  void on_unseen_failure(std::exception_ptr error) noexcept override;
  void on_wait_begin(std::string_view description) noexcept override;
  void on_wait_end(std::string_view description, Duration waited) noexcept override;

  /// As on_deadline() of a call that is not the running one.
  TimePoint on_deadline_of(const std::string& title, TimePoint now, Duration waited);

 private:
  bool owes(int peer) const;
  std::exception_ptr timeout_error(Duration waited, const PeerWatch::Verdict& verdict,
                                   const std::string& title) const;

  Engine& engine_;
  std::mutex mutex_;  // running_
  std::string running_;
  std::atomic<std::int64_t> time_{0};
  std::atomic<int> blocked_{0};
};

}  // namespace trireme::inline v0::comm
