// The Supervisor's part for jobs whose number of ranks changes: processes of an elastic job that come,
// end or fall silent, and the wishes of the user (`trireme resize`).
#include <signal.h>
#include <unistd.h>

#include <fstream>
#include <utility>

#include "trireme/base/error.h"
#include "trireme/base/words.h"
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
  if (roles_.role_of(process) != Role::Worker) return true;
  if (!elastic_) return process < roles_.workers;
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
  if (!may_change_ranks()) return;
  if (decision.epoch) coordinator_->regroup(*decision.epoch);
  if (!decision.line.empty()) say(decision.line);
  for (const auto& [process, delay] : decision.starts) restart_after(delay, process);
}

void Supervisor::stop_restarting() {
  restarts_ = false;
  restarts_due_ = 0;
  for (int process = 0; process < roles_.processes(); ++process)
    if (std::exchange(ranks_[process].due, false) && !elastic_ && !finished_) do_without(process);
  if (elastic_) hosts_.end_attempts();
  waiter_->wake();
}

void Supervisor::watch_elastic() {
  if (ending_ || finished_) return;
  if (elastic_) end_silent_processes();
  read_wanted();
  if (options_.range) resize_workers();
  waiter_->run_at(waiter_->now() + kLook, [this] { watch_elastic(); });
}

// Kills ranks and servers that have fallen silent, so that their end is handled as any other.
void Supervisor::end_silent_processes() {
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
}

void Supervisor::read_wanted() {
  if (options_.wanted_file.empty()) return;
  std::string text;
  if (!std::getline(std::ifstream(options_.wanted_file), text) || text == wanted_text_) return;
  wanted_text_ = text;
  const int wanted = std::atoi(text.c_str());
  if (elastic_) {
    if (may_change_ranks()) carry_out(elastic_->resize(wanted, waiter_->now()));
    return;
  }
  const auto [min, max] = *options_.range;
  if (wanted < min || wanted > max)
    return say(counted(wanted, "rank") + " are asked for, but the job has " + std::to_string(min) +
               " to " + std::to_string(max) + " (--elastic); it goes on with " +
               std::to_string(num_workers_ - workers_ended_) + ".");
  wanted_workers_ = wanted;
}

// One change at a time, until there are as many workers as wanted. Not once one has ended its training.
void Supervisor::resize_workers() {
  if (first_signal_ != 0 || out_of_time_ || workers_ended_ > 0 || starting_) return;
  if (num_workers_ < wanted_workers_) add_worker();
  if (num_workers_ > wanted_workers_) dismiss_worker();
}

bool Supervisor::in_job(int worker) const {
  const Rank& one = ranks_[static_cast<std::size_t>(roles_.process_of(Role::Worker, worker))];
  return one.runs() && !one.leaves;
}

// A place whose last worker is still about to leave is not free yet.
void Supervisor::add_worker() {
  for (int worker = 0; worker < options_.range->max; ++worker) {
    const int process = roles_.process_of(Role::Worker, worker);
    if (ranks_[process].runs() || ranks_[process].due) continue;
    ++num_workers_;
    say(roles_.name_of(process) + " joins, as asked: " + counted(num_workers_, "rank") + ".");
    return restart(process);
  }
}

// Rank 0, which validates and saves, stays.
void Supervisor::dismiss_worker() {
  int worker = options_.range->max - 1;
  while (worker > 0 && !in_job(worker)) --worker;
  if (worker == 0) return;
  const int process = roles_.process_of(Role::Worker, worker);
  if (!coordinator_->trains_alone(process)) return;  // it has just been started
  ranks_[process].leaves = true;
  --num_workers_;
  ask_to_end(process);
}

// Servers are needed until the last worker has ended.
void Supervisor::end_with_rank0() {
  for (int process = 1; process < roles_.processes(); ++process) {
    Rank& one = ranks_[process];
    if (roles_.role_of(process) != Role::Worker) continue;
    if (std::exchange(one.due, false)) do_without(process);
    if (!one.runs() || one.leaves) continue;
    one.ends = true;
    ask_to_end(process);
  }
}

void Supervisor::ask_to_end(int process) {
  hosts_.host_of(process).signal(process, SIGTERM, /*group=*/false);
  waiter_->run_at(waiter_->now() + options_.stop_grace,
                  [this, process, restarts = ranks_[process].restarts] {
                    if (ranks_[process].runs() && ranks_[process].restarts == restarts)
                      hosts_.host_of(process).signal(process, SIGKILL, /*group=*/true);
                  });
}

// However the process has ended.
void Supervisor::note_dismissed(int process) {
  coordinator_->lose_worker(process);
  if (!finished_ && !ending_)
    say(roles_.name_of(process) + " has left, as asked: " + counted(num_workers_, "rank") + ".");
}

}  // namespace trireme::inline v0::launch
