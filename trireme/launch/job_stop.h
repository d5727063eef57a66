// JobStop: stops a job on a signal to the launcher, a failure, a rank's stop, or the time limit.
// The ranks are told first, then asked to end, then killed. result() says how the launch ended.
//
// The Supervisor owns it. Used in the progress context. `on_begin` is called when the job begins to
// stop; it must end all starts.
#pragma once

#include <functional>
#include <optional>

#include "trireme/launch/processes.h"

namespace trireme::inline v0::launch {

class JobStop {
 public:
  JobStop(const JobContext& job, Processes& processes, std::function<void()> on_begin);

  /// The launcher has got this signal.
  void on_signal(int signal);
  /// The job has failed. `secondary`: another failure caused this one; the ranks are told a moment
  /// later, when the cause may be known.
  void on_failure(bool secondary);
  void on_time_limit();
  /// A process of the start could not be started.
  void on_failed_start();
  /// Ranks that train together have agreed to stop. Those that train on their own are told here.
  void tell_others(const Exit& exit);

  /// Whether a process with this end was asked to stop. `spare`: it had no place in an elastic job,
  /// whose ranks are not stopped by a signal to it alone.
  bool asked_for(const Exit& exit, bool spare = false) const;
  bool begun() const noexcept { return failed_ || out_of_time_ || first_signal_ != 0; }
  bool failed() const noexcept { return failed_; }
  bool out_of_time() const noexcept { return out_of_time_; }
  /// The exit codes and the last line, once all processes have ended. `failure`: the first.
  /// `started_all`: the last process was started.
  LaunchResult result(bool started_all, const std::optional<rendezvous::Failure>& failure) const;
  /// The signal to this process, and the one sent to the ranks; 0: none.
  int first_signal() const noexcept { return first_signal_; }
  int stop_signal() const noexcept { return stop_signal_; }

 private:
  void suspend();
  void kill_late();

  const JobContext& job_;
  Processes& processes_;
  const std::function<void()> on_begin_;
  int first_signal_ = 0;
  int stop_signal_ = 0;
  int insisted_ = 0;   // how many SIGINT and SIGTERM came
  bool told_ = false;  // the ranks were asked to stop
  bool out_of_time_ = false;
  bool failed_ = false;
};

}  // namespace trireme::inline v0::launch
