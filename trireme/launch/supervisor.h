// Supervisor: one launch from the first process to the last; see launch.h for what it promises.
//
// Everything but the constructor and run() happens in its Waiter's progress context; so does the
// starting of ranks, one at a step, between which signals and ended ranks are seen.
#pragma once

#include <atomic>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "trireme/base/real_waiter.h"
#include "trireme/launch/coordinator.h"
#include "trireme/launch/guard.h"
#include "trireme/launch/launch.h"
#include "trireme/launch/output.h"
#include "trireme/launch/sources.h"
#include "trireme/launch/spawn.h"
#include "trireme/launch/status_page.h"
#include "trireme/net/socket.h"

namespace trireme {
inline namespace v0 {
namespace launch {

class Supervisor {
 public:
  explicit Supervisor(const LaunchOptions& options);
  ~Supervisor();
  LaunchResult run();

 private:
  struct Rank {
    pid_t pid = -1;
    std::optional<Exit> exit;
    bool killed = false;  // we sent it SIGTERM or SIGKILL while it ran
    std::unique_ptr<StatusPage> status;
  };
  class Starter;

  std::string make_secret() const;
  CoreShare share_of_cores() const;
  /// The next rank, unless the job ends already; false once no more are to come.
  bool start_next();
  void start_rank(int rank);
  void supervise(int rank, const Process& process);
  std::vector<std::string> environment_of(int rank, int status) const;
  void in_context(const std::function<void()>& task);
  void add(std::shared_ptr<DescriptorSource> source);
  void add_pipe(int rank, bool error, net::Descriptor end);

  void on_exit(int rank, Exit exit);
  void on_reported(const Failure& failure);
  void on_signal(int signal);
  void suspend();
  bool stopped_as_asked(const Exit& exit) const;
  /// The job is lost: the others are told, then asked, then killed.
  void end_all(bool secondary);
  void kill_after(Duration delay, int signal);
  void kill_all(int signal);
  bool all_ended() const noexcept { return !starting_ && running_ == 0; }
  bool output_finished() const;
  LaunchResult result() const;

  const LaunchOptions& options_;
  const std::string host_;
  Guard guard_;                            // the first: the less there is, the smaller its copy
  std::optional<BlockedSignals> blocked_;  // before any thread
  std::shared_ptr<SignalSource> signals_;
  std::unique_ptr<Output> output_;
  const std::string secret_;
  net::Descriptor secret_file_;  // that the ranks inherit
  CoreShare share_;
  std::unique_ptr<Coordinator> coordinator_;
  std::vector<Rank> ranks_;  // never resized
  int num_started_ = 0;
  std::atomic<bool> starting_{false};
  std::atomic<int> running_{0};  // ranks whose end was not dealt with
  std::exception_ptr start_error_;
  std::vector<std::shared_ptr<LineSource>> pipes_;
  int first_signal_ = 0;  // that asked this process to stop
  int stop_signal_ = 0;   // that the ranks were asked by
  int insisted_ = 0;      // SIGINT and SIGTERM so far
  bool out_of_time_ = false;
  bool ending_ = false;                 // end_all() was called
  std::shared_ptr<RealWaiter> waiter_;  // the last: its thread uses all the others
};

}  // namespace launch
}  // namespace v0
}  // namespace trireme
