#include "trireme/launch/job_stop.h"

#include <signal.h>

#include <string>
#include <utility>

#include "trireme/base/words.h"
#include "trireme/launch/output.h"

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
  kill_after(kTermAfter, SIGTERM);
  kill_after(kKillAfter, SIGKILL);
}

void JobStop::on_time_limit() {
  out_of_time_ = true;
  on_begin_();
  processes_.signal_all(SIGKILL);
}

void JobStop::tell_others(const Exit& exit) {
  job_.coordinator->request_stop(exit.code == 128 + SIGINT ? SIGINT : SIGTERM);
  kill_late();
}

void JobStop::kill_after(Duration delay, int signal) {
  job_.run_after(delay, [this, signal] { processes_.signal_all(signal); });
}

// Processes may be in a long validation, or may not look for signals at all.
void JobStop::kill_late() {
  job_.run_after(job_.options.stop_grace, [this] {
    std::string late;
    for (int process = 0; process < processes_.count(); ++process)
      if (processes_[process].runs())
        late += (late.empty() ? "" : ", ") + job_.roles.name_of(process);
    if (late.empty()) return;
    say("killed since they have not ended " + duration_text(to_seconds(job_.options.stop_grace)) +
        " after they were asked to: " + late +
        ". What they have done since the last checkpoint is lost.");
    processes_.signal_all(SIGKILL);
  });
}

// 130 and 143 are a rank's answer to a stop signal, its own or ours. A rank that another process's
// signal has killed gave no answer; it is lost to the others.
bool JobStop::asked_for(const Exit& exit) const {
  if (failed_) return false;
  if (exit.signal != 0) return stop_signal_ != 0 && exit.signal == stop_signal_;
  return exit.code == 130 || exit.code == 143;
}

}  // namespace trireme::inline v0::launch
