// The Supervisor's reactions to the end of a process.
#include <signal.h>
#include <unistd.h>

#include <string>

#include "trireme/base/error.h"
#include "trireme/launch/output.h"
#include "trireme/launch/rank_end.h"
#include "trireme/launch/supervisor.h"

namespace trireme::inline v0::launch {

void Supervisor::on_exit(int rank, const Ending& ending) {
  const Exit exit = ending.exit;
  processes_.note_end(rank, exit);
  if (processes_[rank].leaves) {
    workers_.note_dismissed(rank);
    return processes_.settle();
  }
  const bool worker = roles_.role_of(rank) == Role::Worker;
  const bool spare = elastic_ && worker && !elastic_->epoch().rank_of(rank);
  processes_[rank].spare = spare;
  const bool asked = processes_[rank].ends || (worker && stop_.asked_for(exit, spare));
  if (!asked && (elastic_ && worker ? elastic_->lost(rank, ending) : goes_on_without(rank, exit)))
    return processes_.settle();
  if (exit.code != 0 && !asked) {
    const bool by_us =
        processes_[rank].killed && (exit.signal == SIGKILL || exit.signal == SIGTERM);
    const std::string host = hosts_.several() ? hosts_.name_of(rank) : host_;
    const rendezvous::Failure failure = failure_of(rank, roles_, host, ending);
    if (roles_.role_of(rank) == Role::Evaluator) {
      if (!by_us && !stop_.failed())
        say(failure.sentence + (workers_.finished() ? "" : " The job goes on without it."));
    } else if (!workers_.finished()) {
      if (!by_us) coordinator_->fail(failure);  // ignored if the process has reported one itself
      stop_.on_failure(failure.secondary());
    }
  }
  if (rank == 0 && exit.code == 0 && options_.ends_with_rank0) workers_.end_with_rank0();
  if (worker) elastic_ ? elastic_->note_end(rank) : workers_.note_end(workers_.count());
  coordinator_->end(rank);
  if (exit.code != 0 && asked && !processes_[rank].ends) stop_.tell_others(exit);
  processes_.settle();
}

// Servers, the evaluator and processes without a place end with the workers.
void Supervisor::finish() {
  stop_restarting();
  if (roles_.processes() == roles_.workers && !elastic_) return;
  coordinator_->finish();
  if (elastic_)  // those that wait for a place
    job_.run_after(options_.stop_grace, [this] { processes_.kill_role(Role::Worker); });
  job_.run_after(options_.stop_grace, [this] { processes_.kill_role(Role::Server); });
  job_.run_after(options_.evaluator_grace, [this] { processes_.kill_role(Role::Evaluator); });
}

// True if the job goes on without the process, or with a new one in its place.
bool Supervisor::goes_on_without(int process, const Exit& exit) {
  if (workers_.finished() || stop_.begun() || !may_come_back(exit)) return false;
  const Role role = roles_.role_of(process);
  const int number = roles_.number_of(process);
  const bool again = restarts_left_ > 0;
  std::string line = roles_.name_of(process) + " " + how_it_ended(exit) + "; ";
  if (role == Role::Server) {
    const auto view = coordinator_->lose_server(number);
    if (!view) return false;
    line += "server " + std::to_string(view->primary(number)) + " has its shard; ";
  } else if (role != Role::Worker || !(again || workers_.can_do_without(process)) ||
             !coordinator_->lose_worker(process)) {
    return false;
  }
  say(line + (again ? "the job goes on."
                    : "the job goes on without it, after " + std::to_string(options_.restarts) +
                          " restarts of processes."));
  if (again) {
    --restarts_left_;
    starter_.start_again_after(processes_[process].delay.next(waiter_->now(), {}), process);
  } else {
    workers_.do_without(process);
  }
  return true;
}

void Supervisor::not_started_again(int process, const std::string& how) {
  const bool worker = roles_.role_of(process) == Role::Worker;
  if (elastic_ && worker) return elastic_->not_started(process, how, host_);
  if (worker && !workers_.can_do_without(process))
    return fail({.rank = process,
                 .host = host_,
                 .operation = "launch",
                 .sentence = how,
                 .exit_code = static_cast<int>(ExitCode::Resource)});
  say(how);
  workers_.do_without(process);
}

void Supervisor::fail(const rendezvous::Failure& failure) {
  coordinator_->fail(failure);
  stop_.on_failure(/*secondary=*/false);
}

void Supervisor::on_reported(const rendezvous::Failure& failure) {
  if (failure.stopped()) return;
  stop_.on_failure(failure.secondary());
}

void Supervisor::report_copy(int shard, int server) const {
  const int process = roles_.process_of(Role::Server, server);
  if (processes_[process].restarts > 0)
    say(roles_.name_of(process) + " is back, with a copy of shard " + std::to_string(shard) + ".");
}

// The others cannot reach the server and have gone on without it.
void Supervisor::end_server(int server) {
  const int process = roles_.process_of(Role::Server, server);
  if (processes_[process].runs()) processes_.signal_group(process, SIGKILL);
}

}  // namespace trireme::inline v0::launch
