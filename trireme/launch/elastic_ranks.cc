#include "trireme/launch/elastic_ranks.h"

#include <signal.h>

#include <utility>

#include "trireme/base/error.h"
#include "trireme/launch/output.h"
#include "trireme/launch/rank_end.h"

namespace trireme::inline v0::launch {
namespace {

// Another host's processes end within this time after SIGKILL was sent there.
constexpr Duration kHostAnswers = std::chrono::seconds(3);

}  // namespace

ElasticRanks::ElasticRanks(const JobContext& job, Processes& processes, ProcessStarter& starter,
                           JobStop& stop, Workers& workers)
    : job_(job),
      processes_(processes),
      starter_(starter),
      stop_(stop),
      workers_(workers),
      group_(*job.options.elastic, job.options.ranks) {}

bool ElasticRanks::may_change() const {
  return !stop_.begun() && !workers_.finished() && workers_.ended() == 0;
}

void ElasticRanks::joined(int process) {
  if (job_.roles.role_of(process) != Role::Worker) return;
  if (!processes_[process].runs()) return;  // it has ended since it joined
  if (may_change()) carry_out(group_.joined(process));
}

void ElasticRanks::resize(int ranks) {
  if (may_change()) carry_out(group_.resize(ranks, job_.waiter->now()));
}

void ElasticRanks::carry_out(const ElasticGroup::Decision& decision) {
  if (!may_change()) return;
  if (decision.epoch) job_.coordinator->regroup(*decision.epoch);
  if (!decision.line.empty()) say(decision.line);
  for (const auto& [process, delay] : decision.starts) starter_.start_again_after(delay, process);
}

std::string ElasticRanks::how_it_was_lost(int process, const Ending& ending) const {
  const std::string name = job_.roles.name_of(process), host = job_.hosts.name_of(process);
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

bool ElasticRanks::lost(int process, const Ending& ending) {
  const Exit& exit = ending.exit;
  const bool member = group_.is_member(process);
  if (workers_.finished() || stop_.begun())  // nobody waits for an absent host
    return !member && ending.host == HostLoss::NotReached;
  if (exit.code == 0 && exit.signal == 0) return false;
  const bool again = may_come_back(exit);
  if (member && !again) return false;
  const std::string how = how_it_was_lost(process, ending);
  if (workers_.ended() > 0) {  // the training has ended, and others say so to each other
    say(how + ", after the training had ended.");
    note_end(process);
    return true;
  }
  if (group_.is_leaving(process) && job_.coordinator->has_met()) group_.met();
  job_.coordinator->forget(process);
  if (ending.host == HostLoss::NotReached) group_.not_started();
  ElasticGroup::Decision decision = group_.lost(process, how, again, job_.waiter->now());
  if (decision.give_up) {
    say(decision.line);
    return false;
  }
  const bool away = ending.host == HostLoss::NotReached;
  if (std::exchange(processes_[process].away, away) && away) decision.line.clear();  // told already
  carry_out(decision);
  return true;
}

void ElasticRanks::not_started(int process, const std::string& how, const std::string& host) {
  const ElasticGroup::Decision decision =
      group_.lost(process, how, /*again=*/true, job_.waiter->now());
  if (!decision.give_up) return carry_out(decision);
  job_.coordinator->fail({.rank = process,
                          .host = host,
                          .operation = "launch",
                          .sentence = decision.line,
                          .exit_code = static_cast<int>(ExitCode::Resource)});
  stop_.on_failure(/*secondary=*/false);
}

void ElasticRanks::note_end(int process) {
  if (group_.is_member(process)) workers_.note_end(static_cast<int>(epoch().members.size()));
  // The job was stopped while it waited for ranks.
  if (epoch().members.empty() && stop_.begun() && !processes_.runs(Role::Worker))
    workers_.note_end(/*ranks=*/1);
}

void ElasticRanks::end_silent() {
  const Duration silence = job_.options.elastic->silence;
  const TimePoint now = job_.waiter->now();
  if (looked_ != TimePoint() && now - looked_ > silence / 2)
    job_.coordinator->forgive_silence();  // this process itself was stopped, and heard nobody
  looked_ = now;
  for (const int process : job_.coordinator->silent(silence)) {
    Processes::One& one = processes_[process];
    if (!one.runs() || one.killed || std::exchange(one.silent, true)) continue;
    say(job_.roles.name_of(process) + " has sent no heartbeat; it is killed.");
    processes_.signal_group(process, SIGKILL);  // not kill(): a needed process's end is a failure
    // If the process does not end, its host does not hear this host any more.
    processes_.if_it_still_runs_after(kHostAnswers, process,
                                      [this, process] { job_.hosts.drop_connection(process); });
  }
}

}  // namespace trireme::inline v0::launch
