// Supervisor: runs one launch from the first process to the last. launch.h describes its behaviour.
//
// Everything except the constructor and run() runs in its Waiter's progress context. Ranks are
// started there one per step, so signals and ended ranks are noticed in between.
#pragma once

#include <atomic>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "trireme/base/real_waiter.h"
#include "trireme/launch/guard.h"
#include "trireme/launch/job_hosts.h"
#include "trireme/launch/launch.h"
#include "trireme/launch/output.h"
#include "trireme/launch/sources.h"
#include "trireme/rendezvous/job_control.h"

namespace trireme::inline v0::launch {

class Supervisor {
 public:
  explicit Supervisor(const LaunchOptions& options);
  ~Supervisor();
  LaunchResult run();

 private:
  struct Rank {
    bool started = false;
    std::optional<Exit> exit;
    int restarts = 0;
    RestartDelay delay = {};
    bool due = false;     // it is to be started again
    bool away = false;    // its host could not be reached at the last try
    bool killed = false;  // we sent it SIGTERM or SIGKILL while it ran
    bool leaves = false;  // as the user wants fewer
    bool ends = false;    // as rank 0 has ended
    bool runs() const noexcept { return started && !exit; }
  };
  class Starter;

  std::string make_secret() const;
  std::unique_ptr<rendezvous::JobControl> make_coordinator(const std::string& address);
  void open_hosts();
  void close_hosts();
  /// Starts the next rank unless the job is ending. False if no more ranks are to be started.
  bool start_next();
  void start_rank(int rank);
  std::vector<std::string> environment_of(int process) const;
  void in_context(const std::function<void()>& task);

  void on_start(int rank, pid_t pid);
  void on_exit(int rank, const Ending& ending);
  bool goes_on_without(int process, const Exit& exit);
  void restart(int process);
  void restart_after(Duration delay, int process);
  bool handle_elastic(int process, const Ending& ending);
  std::string how_it_was_lost(int process, const Ending& ending) const;
  void note_worker_end(int process);
  void give_place_up(int process, const std::string& how);
  /// Not once a rank has ended its training: it would be missing among the next ranks.
  bool may_change_ranks() const { return !ending_ && !finished_ && workers_ended_ == 0; }
  void carry_out(const ElasticGroup::Decision& decision);
  void watch_elastic();
  void end_silent_processes();
  void read_wanted();
  void resize_workers();
  void add_worker();
  void dismiss_worker();
  void end_with_rank0();
  void ask_to_end(int process);
  void note_dismissed(int process);
  bool in_job(int worker) const;
  bool starts_first(int process) const;
  bool can_do_without(int worker) const;
  void do_without(int process);
  void stop_others(const Exit& exit);
  void end_server(int server);
  void report_copy(int shard, int server) const;
  void lose_coordinator(const rendezvous::Failure& failure);
  void on_reported(const rendezvous::Failure& failure);
  void on_signal(int signal);
  void suspend();
  void report_evaluator(const rendezvous::Failure& failure);
  void finish();
  bool stopped_as_asked(const Exit& exit) const;
  /// The job has failed: tells the other ranks, then asks them to end, then kills them.
  void end_all(bool secondary);
  void kill_after(Duration delay, int signal);
  void kill_role(Role role);
  void kill_all(int signal);
  bool all_ended() const noexcept { return !starting_ && running_ == 0 && restarts_due_ == 0; }
  /// No more processes are started.
  void stop_restarting();
  LaunchResult result() const;

  const LaunchOptions& options_;
  const std::string host_;
  const rendezvous::Roles roles_;
  JobHosts hosts_;
  Guard guard_;                            // made first, when the process to copy is smallest
  std::optional<BlockedSignals> blocked_;  // before any thread
  std::shared_ptr<SignalSource> signals_;
  std::unique_ptr<Output> output_;
  const std::string secret_;
  int restarts_left_;
  std::optional<ElasticGroup> elastic_;
  TimePoint looked_{};       // when end_silent_processes() looked last
  std::string wanted_text_;  // of the file with the wanted number of ranks
  std::unique_ptr<rendezvous::JobControl> coordinator_;
  std::vector<Rank> ranks_;  // all processes, in the order of Roles; never resized
  int num_started_ = 0;
  std::atomic<bool> starting_{false};
  std::atomic<int> running_{0};  // ranks whose end has not been handled
  std::atomic<int> restarts_due_{0};
  bool restarts_ = true;
  std::exception_ptr start_error_;
  int first_signal_ = 0;  // the one that asked this process to stop
  int stop_signal_ = 0;   // the one that asked the ranks to stop
  int insisted_ = 0;      // number of SIGINT and SIGTERM so far
  bool out_of_time_ = false;
  int num_workers_;  // that the job has or had until their end, unless it is elastic
  int wanted_workers_;
  int workers_ended_ = 0;
  bool finished_ = false;               // all workers have ended
  bool ending_ = false;                 // end_all() was called
  std::shared_ptr<RealWaiter> waiter_;  // last, because its thread uses all others
};

}  // namespace trireme::inline v0::launch
