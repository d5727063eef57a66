// Processes: the processes of a job on all hosts: which of them run, how each ended, and the
// signals that they get.
//
// The Supervisor owns it; its other parts decide which process gets which signal. Used in the
// progress context; any thread may call any_runs().
#pragma once

#include <atomic>
#include <optional>
#include <vector>

#include "trireme/launch/job_context.h"
#include "trireme/launch/restart_delay.h"

namespace trireme::inline v0::launch {

class Processes {
 public:
  /// One place in the job. A process that is started again has the same place.
  struct One {
    bool started = false;
    std::optional<Exit> exit;
    int restarts = 0;
    RestartDelay delay = {};
    bool due = false;     // it is to be started again
    bool away = false;    // its host could not be reached at the last try
    bool killed = false;  // we sent it SIGTERM or SIGKILL, and its end is not its own failure
    bool silent = false;  // it was killed because it was silent
    bool leaves = false;  // it was dismissed: the user wants fewer
    bool ends = false;    // it was asked to end because rank 0 has ended
    bool spare = false;   // it ended without a place among the ranks
    bool runs() const noexcept { return started && !exit; }
  };

  explicit Processes(const JobContext& job);
  int count() const noexcept { return job_.roles.processes(); }
  One& operator[](int process) { return all_[static_cast<std::size_t>(process)]; }
  const One& operator[](int process) const { return all_[static_cast<std::size_t>(process)]; }

  void note_start(int process);
  /// The process counts for any_runs() until settle() is called.
  void note_end(int process, const Exit& exit) { (*this)[process].exit = exit; }
  /// The end of one process has been handled.
  void settle();
  bool any_runs() const noexcept { return running_ != 0; }
  /// Whether one of this role runs.
  bool runs(Role role) const;

  /// Signals the process alone.
  void signal(int process, int signal);
  /// Signals the process and those that it started.
  void signal_group(int process, int signal);
  /// SIGKILL to its group; its end is then not its own failure.
  void kill(int process);
  /// Signals the groups of all running processes.
  void signal_all(int signal);
  void kill_role(Role role);
  /// SIGTERM now and, unless it has ended, SIGKILL after `stop_grace`.
  void ask_to_end(int process);
  /// Runs the task after `delay` if the process still runs then, and is still the same process.
  void if_it_still_runs_after(Duration delay, int process, std::function<void()> task);

 private:
  const JobContext& job_;
  std::vector<One> all_;  // in the order of Roles; never resized
  std::atomic<int> running_{0};
};

}  // namespace trireme::inline v0::launch
