#include "trireme/launch/job_stop.h"

#include <signal.h>

#include <string>
#include <utility>
#include <vector>

#include "trireme/base/end_by_signal.h"
#include "trireme/base/error.h"
#include "trireme/base/joined.h"
#include "trireme/base/words.h"
#include "trireme/launch/output.h"
#include "trireme/launch/rank_end.h"

namespace trireme::inline v0::launch {
namespace {

// A failure is announced at once. The other ranks have the rest of the 2 s to end by themselves.
constexpr Duration kTermAfter = std::chrono::milliseconds(1000);
constexpr Duration kKillAfter = std::chrono::milliseconds(1600);
// A rank that lost a peer may report it before that peer's end is seen.
constexpr Duration kCauseAfter = std::chrono::milliseconds(300);

}  // namespace

JobStop::JobStop(const JobContext& job, Processes& processes, std::function<void()> on_begin)
    : job_(job), processes_(processes), on_begin_(std::move(on_begin)) {}

// A closed terminal and service managers send SIGHUP together with SIGTERM, so only SIGINT and
// SIGTERM count as repeated requests.
void JobStop::on_signal(int signal) {
  if (signal == SIGTSTP) return suspend();
  if (signal == SIGINT || signal == SIGTERM) ++insisted_;
  if (insisted_ > 2) end_by(signal);  // a rank that cannot be killed, or gRPC, blocks us
  if (insisted_ == 2) return processes_.signal_all(SIGKILL);
  if (first_signal_ != 0) return;
  first_signal_ = signal;
  on_begin_();
  stop_signal_ = stop_signal_for(signal);
  told_ = true;
  if (job_.coordinator) job_.coordinator->request_stop(stop_signal_);
  for (int process = 0; process < processes_.count(); ++process) {  // the others end with workers
    if (job_.roles.role_of(process) == Role::Worker && processes_[process].runs())
      processes_.signal(process, stop_signal_);
  }
  kill_late();
}

// Ctrl-Z: the ranks are in their own groups, so stop and continue them with this process.
void JobStop::suspend() {
  processes_.signal_all(SIGSTOP);
  raise(SIGSTOP);
  if (job_.coordinator) job_.coordinator->forgive_silence();
  processes_.signal_all(SIGCONT);
}

void JobStop::on_failure(bool secondary) {
  if (failed_) return;
  if (secondary && !job_.coordinator->first_failure().has_value()) return;
  failed_ = true;
  on_begin_();
  job_.run_after(secondary ? kCauseAfter : Duration::zero(),
                 [this] { job_.coordinator->announce_failure(); });
  job_.run_after(kTermAfter, [this] { processes_.signal_all(SIGTERM); });
  job_.run_after(kKillAfter, [this] { processes_.signal_all(SIGKILL); });
}

void JobStop::on_time_limit() {
  out_of_time_ = true;
  on_begin_();
  processes_.signal_all(SIGKILL);
}

void JobStop::on_failed_start() {
  if (std::exchange(failed_, true)) return;
  on_begin_();
  processes_.signal_all(SIGKILL);
}

void JobStop::tell_others(const Exit& exit) {
  told_ = true;
  job_.coordinator->request_stop(exit.code == 128 + SIGINT ? SIGINT : SIGTERM);
  kill_late();
}

// Processes may be in a long validation, or never look for signals.
void JobStop::kill_late() {
  job_.run_after(job_.options.stop_grace, [this] {
    std::vector<std::string> late;
    for (int process = 0; process < processes_.count(); ++process)
      if (processes_[process].runs()) late.push_back(job_.roles.name_of(process));
    if (late.empty()) return;
    say("killed, since they did not end within " +
        duration_text(to_seconds(job_.options.stop_grace)) + " after the request to stop: " +
        joined(late) + ". Their work since the last checkpoint is lost.");
    processes_.signal_all(SIGKILL);
  });
}

// 130 and 143 are a rank's answer to a stop signal, its own or ours. A rank that another process's
// signal has killed gave no answer; it is lost to the others.
bool JobStop::asked_for(const Exit& exit, bool spare) const {
  if (failed_) return false;
  if (exit.signal != 0) return stop_signal_ != 0 && exit.signal == stop_signal_;
  return (exit.code == 130 || exit.code == 143) && (told_ || !spare);
}

LaunchResult JobStop::result(bool started_all,
                             const std::optional<rendezvous::Failure>& failure) const {
  LaunchResult result;
  result.stop_signal = first_signal_;
  result.out_of_time = out_of_time_;
  result.failure = failure;
  int stopped = first_signal_ != 0 && !started_all ? 128 + stop_signal_ : 0;
  int by = -1;  // a rank that stopped without being killed by us
  for (int rank = 0; rank < processes_.count(); ++rank) {
    const Processes::One& one = processes_[rank];
    const Exit exit = one.exit.value_or(Exit{-1, 0});
    result.exit_codes.push_back(exit.code);
    if (job_.roles.role_of(rank) != Role::Worker || one.leaves || one.ends) continue;
    if (one.spare && !told_) continue;
    const bool ours =
        stop_signal_ != 0 && exit.signal != 0 && (one.killed || exit.signal == stop_signal_);
    if (!ours && exit.code != 130 && exit.code != 143) continue;
    stopped = ours ? 128 + stop_signal_ : exit.code;
    if (!one.killed) by = rank;
  }
  // Ranks that lose a peer by a stop fail, too. A crash is no stop: nothing may have been saved.
  const bool failed = result.failure && !result.failure->secondary() && !result.failure->stopped();
  if (stopped != 0 && !failed && (stop_signal_ != 0 || !result.failure)) {
    result.failure.reset();
    result.exit_code = stopped;
    result.last_line = first_signal_ != 0 ? "stopped by " + name_of(first_signal_) + "."
                                          : "stopped, as a rank asked.";
  } else if (result.failure && result.failure->secondary() && by >= 0) {
    result.exit_code = result.exit_codes[by];
    result.last_line = job_.roles.name_of(by) + " was stopped by " +
                       name_of(result.exit_code - 128) +
                       ", and others lost it: " + result.failure->sentence;
  } else if (result.failure) {
    result.exit_code = result.failure->exit_code;
    result.last_line = result.failure->sentence;
  } else if (out_of_time_) {
    result.exit_code = static_cast<int>(ExitCode::Timeout);
    result.last_line =
        "killed at its time limit, " + duration_text(to_seconds(job_.options.time_limit)) + ".";
  }
  return result;
}

}  // namespace trireme::inline v0::launch
