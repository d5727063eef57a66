// ProcessStarter: starts the processes of a job, at the beginning one per step, and later again, at
// once or after a delay.
//
// The Supervisor owns it. Used in the progress context; any thread may call idle().
#pragma once

#include <atomic>
#include <exception>
#include <functional>
#include <string>
#include <vector>

#include "trireme/launch/processes.h"

namespace trireme::inline v0::launch {

class ProcessStarter {
 public:
  /// `on_fault` is called with a sentence when a process could not be started again.
  ProcessStarter(const JobContext& job, Processes& processes,
                 std::function<void(int process, const std::string& how)> on_fault);

  /// From now on start_next() starts the processes that the job begins with.
  void begin() { starting_ = true; }
  /// Starts the next process; if not `more`, ends the start. False if there was nothing to do.
  bool start_next(bool more);
  void start_again(int process);
  void start_again_after(Duration delay, int process);
  /// From now on no process is started again. Returns those that were due.
  std::vector<int> stop_restarting();

  bool starting() const noexcept { return starting_; }
  bool idle() const noexcept { return !starting_ && due_ == 0; }
  bool has_started_all() const noexcept { return next_ >= processes_.count(); }
  /// Why the start, and with it the launch, has failed; null if it has not.
  const std::exception_ptr& error() const noexcept { return error_; }

 private:
  /// Whether the job begins with this process.
  bool starts_first(int process) const;
  void start(int process);
  std::vector<std::string> environment_of(int process) const;

  const JobContext& job_;
  Processes& processes_;
  const std::function<void(int, const std::string&)> on_fault_;
  int next_ = 0;
  std::atomic<bool> starting_{false};
  std::atomic<int> due_{0};
  bool restarts_ = true;
  std::exception_ptr error_;
};

}  // namespace trireme::inline v0::launch
