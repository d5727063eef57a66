// JobStop: stops a job: when the launcher gets a signal, when a process has failed, when a rank was asked to
// stop, or when the time limit is over. The ranks are told first, then asked to end, then killed. Says what a launch
// that has ended results in.
//
// The Supervisor owns it. Used in the progress context. `on_begin` is called when the job begins to stop:
// no more processes are started then.
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
  /// The job has failed. `secondary`: another failure caused this one, so the ranks are told a moment later,
  /// when that one is known.
  void on_failure(bool secondary);
  void on_time_limit();
  /// A process of the start could not be started.
  void on_failed_start();
  /// Ranks that train together have agreed to stop. Those that train on their own are told here.
  void tell_others(const Exit& exit);

  /// Whether a process that ended like this did so because it was asked to stop. `spare`: it had no place
  /// in an elastic job, whose ranks are not stopped by a signal to it alone.
  bool asked_for(const Exit& exit, bool spare = false) const;
  bool begun() const noexcept { return failed_ || out_of_time_ || first_signal_ != 0; }
  bool failed() const noexcept { return failed_; }
  bool out_of_time() const noexcept { return out_of_time_; }
  /// Exit codes and the line that is printed last, once all processes have ended. `failure`: the first.
  /// `started_all`: the launch got as far as starting its last process.
  LaunchResult result(bool started_all, const std::optional<rendezvous::Failure>& failure) const;
  /// The signal that asked this process to stop, and the one that asked the ranks; 0: none.
  int first_signal() const noexcept { return first_signal_; }
  int stop_signal() const noexcept { return stop_signal_; }

 private:
  void suspend();
  void kill_after(Duration delay, int signal);
  void kill_late();

  const JobContext& job_;
  Processes& processes_;
  const std::function<void()> on_begin_;
  int first_signal_ = 0;
  int stop_signal_ = 0;
  int insisted_ = 0;   // number of SIGINT and SIGTERM so far
  bool told_ = false;  // the ranks were asked to stop
  bool out_of_time_ = false;
  bool failed_ = false;
};

}  // namespace trireme::inline v0::launch
