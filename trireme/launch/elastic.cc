// What the Supervisor does when processes of an elastic job come, end or fall silent.
#include <signal.h>
#include <unistd.h>

#include <fstream>
#include <utility>

#include "trireme/base/error.h"
#include "trireme/launch/output.h"
#include "trireme/launch/rank_end.h"
#include "trireme/launch/supervisor.h"

namespace trireme::inline v0::launch {
namespace {

constexpr Duration kLook = std::chrono::milliseconds(100);
// Another host's processes end within this time after SIGKILL was sent there.
constexpr Duration kHostAnswers = std::chrono::seconds(3);

// The process was killed, or lost its peers. An error in its own code would only come again.
bool may_come_back(const Exit& exit) {
  return exit.signal != 0 || exit.code >= static_cast<int>(ExitCode::PeerLost);
}

}  // namespace

bool Supervisor::starts_first(int process) const {
  if (!elastic_ || roles_.role_of(process) != Role::Worker) return true;
  return process < options_.ranks + options_.elastic->spares;
}

std::string Supervisor::how_it_was_lost(int process, const Ending& ending) const {
  const std::string name = roles_.name_of(process), host = hosts_.name_of(process);
  switch (ending.host) {
    case HostLoss::Lost:
      return name + " is lost with host " + host;
    case HostLoss::NotReached:
      return name + " cannot be started, since host " + host + " is away";
    case HostLoss::None:
      break;
  }
  return name + (host.empty() ? " " : " on host " + host + " ") + how_it_ended(ending.exit);
}

// True if the end of the process does not end the job.
bool Supervisor::handle_elastic(int process, const Ending& ending) {
  const Exit& exit = ending.exit;
  if (roles_.role_of(process) != Role::Worker) return goes_on_without(process, exit);
  const bool member = elastic_->is_member(process);
  if (finished_ || ending_ || out_of_time_ ||
      first_signal_ != 0)  // nobody waits for an absent host
    return !member && ending.host == HostLoss::NotReached;
  if (exit.code == 0 && exit.signal == 0) return false;
  const bool again = may_come_back(exit);
  if (member && !again) return false;
  const std::string how = how_it_was_lost(process, ending);
  if (workers_ended_ > 0) {  // the training has ended, and others say so to each other
    say(how + ", after the training had ended.");
    note_worker_end(process);
    return true;
  }
  coordinator_->forget(process);
  if (ending.host == HostLoss::NotReached) elastic_->not_started();
  ElasticGroup::Decision decision = elastic_->lost(process, how, again, waiter_->now());
  if (decision.give_up) {
    say(decision.line);
    return false;
  }
  const bool away = ending.host == HostLoss::NotReached;
  if (std::exchange(ranks_[process].away, away) && away) decision.line.clear();  // told already
  carry_out(decision);
  return true;
}

// The process could not even be started.
void Supervisor::give_place_up(int process, const std::string& how) {
  const ElasticGroup::Decision decision =
      elastic_->lost(process, how, /*again=*/true, waiter_->now());
  if (!decision.give_up) return carry_out(decision);
  coordinator_->fail({.rank = process,
                      .host = host_,
                      .operation = "launch",
                      .sentence = decision.line,
                      .exit_code = static_cast<int>(ExitCode::Resource)});
  end_all(/*secondary=*/false);
}

void Supervisor::carry_out(const ElasticGroup::Decision& decision) {
  if (ending_ || finished_ || workers_ended_ > 0) return;
  if (decision.epoch) coordinator_->regroup(*decision.epoch);
  if (!decision.line.empty()) say(decision.line);
  for (const auto& [process, delay] : decision.starts)
    if (restarts_) {
      ++restarts_due_;
      waiter_->run_at(waiter_->now() + delay, [this, process = process] {
        if (!restarts_) return;
        restart(process);
        --restarts_due_;
        waiter_->wake();
      });
    }
}

void Supervisor::stop_restarting() {
  restarts_ = false;
  restarts_due_ = 0;
  if (elastic_) hosts_.end_attempts();
  waiter_->wake();
}

// Kills ranks that have fallen silent, so that their end is handled as any other.
void Supervisor::watch_elastic() {
  if (ending_ || finished_) return;
  const TimePoint now = waiter_->now();
  if (looked_ != TimePoint() && now - looked_ > options_.elastic->silence / 2)
    coordinator_->forgive_silence();  // this process was stopped itself, and heard nobody
  looked_ = now;
  for (const int process : coordinator_->silent(options_.elastic->silence)) {
    if (!ranks_[process].runs() || ranks_[process].killed) continue;
    say(roles_.name_of(process) + " has sent no heartbeat; it is killed.");
    ranks_[process].killed = true;
    hosts_.host_of(process).signal(process, SIGKILL, /*group=*/true);
    // If it does not end, its host does not hear this one any more.
    waiter_->run_at(now + kHostAnswers, [this, process, restarts = ranks_[process].restarts] {
      if (ranks_[process].runs() && ranks_[process].restarts == restarts)
        hosts_.drop_connection(process);
    });
  }
  read_wanted();
  waiter_->run_at(now + kLook, [this] { watch_elastic(); });
}

void Supervisor::read_wanted() {
  if (options_.elastic->wanted_file.empty()) return;
  std::string text;
  if (!std::getline(std::ifstream(options_.elastic->wanted_file), text) || text == wanted_text_)
    return;
  wanted_text_ = text;
  carry_out(elastic_->resize(std::atoi(text.c_str()), waiter_->now()));
}

}  // namespace trireme::inline v0::launch
