// Supervisor: runs one launch from the first process to the last. launch.h describes its behaviour.
//
// It makes the parts, and decides what the end of a process means. The parts: Processes (which run,
// signals to them), ProcessStarter (starts, restarts), JobStop (the user's signals, failures,
// deadlines), Workers (their number, and when all have ended), ElasticRanks (ranks that change).
//
// Everything except the constructor and run() runs in its Waiter's progress context. Ranks are
// started there one per step, so signals and ended ranks are noticed in between.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "trireme/base/waiter/real_waiter.h"
#include "trireme/launch/elastic_ranks.h"
#include "trireme/launch/hosts/guard.h"
#include "trireme/launch/hosts/job_hosts.h"
#include "trireme/launch/hosts/sources.h"
#include "trireme/launch/job_stop.h"
#include "trireme/launch/launch.h"
#include "trireme/launch/output.h"
#include "trireme/launch/process_starter.h"
#include "trireme/launch/processes.h"
#include "trireme/launch/workers.h"
#include "trireme/rendezvous/coordinator/job_control.h"

namespace trireme::inline v0::launch {

class Supervisor {
 public:
  explicit Supervisor(const LaunchOptions& options);
  ~Supervisor();
  LaunchResult run();

 private:
  class Starter;

  std::string make_secret() const;
  std::unique_ptr<rendezvous::JobControl> make_coordinator(const std::string& address);
  void open_hosts();
  void close_hosts();

  void on_start(int rank, pid_t pid);
  void on_exit(int rank, const Ending& ending);
  bool goes_on_without(int process, const Exit& exit);
  void not_started_again(int process, const std::string& how);
  void end_server(int server);
  void report_copy(int shard, int server) const;
  void fail(const rendezvous::Failure& failure);
  void on_reported(const rendezvous::Failure& failure);
  /// Looks for silent processes and the user's wishes, and schedules itself again.
  void watch();
  void read_wanted();
  /// All workers have ended.
  void finish();
  bool all_ended() const noexcept { return starter_.idle() && !processes_.any_runs(); }
  /// From now on no process is started again.
  void stop_restarting();

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
  // The text of wanted_file and when it was written: the user may ask for the same number again.
  std::pair<std::string, std::filesystem::file_time_type> wanted_;
  std::unique_ptr<rendezvous::JobControl> coordinator_;
  JobContext job_;
  Processes processes_;
  ProcessStarter starter_;
  JobStop stop_;
  Workers workers_;
  std::optional<ElasticRanks> elastic_;
  std::shared_ptr<RealWaiter> waiter_;  // last, because its thread uses all others
};

}  // namespace trireme::inline v0::launch
