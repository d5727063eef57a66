// What the Supervisor does when a process ends.
#include <signal.h>
#include <unistd.h>

#include <string>
#include <utility>

#include "trireme/base/error.h"
#include "trireme/launch/output.h"
#include "trireme/launch/rank_end.h"
#include "trireme/launch/supervisor.h"

namespace trireme::inline v0::launch {
void Supervisor::on_exit(int rank, const Ending& ending) {
  const Exit exit = ending.exit;
  ranks_[rank].exit = exit;
  if (ranks_[rank].leaves) {
    note_dismissed(rank);
    --running_;
    return waiter_->wake();
  }
  const bool asked =
      ranks_[rank].ends || (stopped_as_asked(exit) && roles_.role_of(rank) == Role::Worker);
  if (!asked && (elastic_ ? handle_elastic(rank, ending) : goes_on_without(rank, exit))) {
    --running_;
    return waiter_->wake();
  }
  if (exit.code != 0 && !asked) {
    const bool by_us = ranks_[rank].killed && (exit.signal == SIGKILL || exit.signal == SIGTERM);
    const std::string host = hosts_.several() ? hosts_.name_of(rank) : host_;
    const rendezvous::Failure failure = failure_of(rank, roles_, host, ending);
    if (roles_.role_of(rank) == Role::Evaluator) {
      if (!by_us && !ending_) report_evaluator(failure);
    } else if (!finished_) {
      if (!by_us) coordinator_->fail(failure);  // ignored if it has reported a failure itself
      end_all(failure.secondary());
    }
  }
  if (rank == 0 && exit.code == 0 && options_.ends_with_rank0) end_with_rank0();
  note_worker_end(rank);
  coordinator_->end(rank);
  if (exit.code != 0 && asked && !ranks_[rank].ends) stop_others(exit);
  --running_;
  waiter_->wake();
}

void Supervisor::report_evaluator(const rendezvous::Failure& failure) {
  say(failure.sentence + (finished_ ? "" : " The job goes on without it."));
}

// Servers, the evaluator and processes without a place end with the workers.
void Supervisor::finish() {
  finished_ = true;
  stop_restarting();
  if (roles_.processes() == roles_.workers && !elastic_) return;
  coordinator_->finish();
  const TimePoint now = waiter_->now();
  if (elastic_)  // those that wait for a place
    waiter_->run_at(now + options_.stop_grace, [this] { kill_role(Role::Worker); });
  waiter_->run_at(now + options_.stop_grace, [this] { kill_role(Role::Server); });
  waiter_->run_at(now + options_.evaluator_grace, [this] { kill_role(Role::Evaluator); });
}

// Ranks that train together have agreed to stop. Those that train on their own are told here.
void Supervisor::stop_others(const Exit& exit) {
  coordinator_->request_stop(exit.code == 128 + SIGINT ? SIGINT : SIGTERM);
  kill_after(options_.stop_grace, SIGKILL);
}

void Supervisor::kill_role(Role role) {
  for (int process = 0; process < roles_.processes(); ++process) {
    if (roles_.role_of(process) != role || !ranks_[process].runs()) continue;
    ranks_[process].killed = true;
    hosts_.host_of(process).signal(process, SIGKILL, /*group=*/true);
  }
}

// 130 and 143 are a rank's answer to a stop signal, its own or ours. A rank that another process's
// signal has killed gave no answer; it is lost to the others.
bool Supervisor::stopped_as_asked(const Exit& exit) const {
  if (ending_) return false;
  if (exit.signal != 0) return stop_signal_ != 0 && exit.signal == stop_signal_;
  return exit.code == 130 || exit.code == 143;
}

// The process was killed, or lost its peers, and the others do not need it. An error in its own code
// would only come again.
bool Supervisor::goes_on_without(int process, const Exit& exit) {
  if (finished_ || ending_ || out_of_time_ || first_signal_ != 0) return false;
  if (exit.signal == 0 && exit.code < static_cast<int>(ExitCode::PeerLost)) return false;
  const Role role = roles_.role_of(process);
  const int number = roles_.number_of(process);
  const bool again = restarts_left_ > 0;
  std::string line = roles_.name_of(process) + " " + how_it_ended(exit) + "; ";
  if (role == Role::Server) {
    const auto view = coordinator_->lose_server(number);
    if (!view) return false;
    line += "server " + std::to_string(view->primary(number)) + " has its shard; ";
  } else if (role != Role::Worker || !(again || can_do_without(process)) ||
             !coordinator_->lose_worker(process)) {
    return false;
  }
  say(line + (again ? "the job goes on."
                    : "the job goes on without it, after " + std::to_string(options_.restarts) +
                          " restarts of processes."));
  if (again) {
    --restarts_left_;
    const TimePoint now = waiter_->now();
    restart_after(ranks_[process].delay.next(now, {}), process);
  } else {
    do_without(process);
  }
  return true;
}

// Rank 0 validates and saves.
bool Supervisor::can_do_without(int worker) const {
  const int left = num_workers_ - workers_ended_ - 1;
  return worker != 0 && left >= (options_.range ? options_.range->min : 1);
}

// When all ranks have ended, the others end as well.
void Supervisor::note_worker_end(int process) {
  if (roles_.role_of(process) != Role::Worker) return;
  if (elastic_ && !elastic_->is_member(process)) return;
  const int ranks = elastic_ ? static_cast<int>(elastic_->epoch().members.size()) : num_workers_;
  if (++workers_ended_ == ranks) finish();
}

// For good: the job has one worker less.
void Supervisor::do_without(int process) {
  if (roles_.role_of(process) != Role::Worker) return;
  wanted_workers_ = --num_workers_;
  if (workers_ended_ == num_workers_) finish();
}

void Supervisor::restart_after(Duration delay, int process) {
  if (!restarts_) return;
  ++restarts_due_;
  ranks_[process].due = true;
  waiter_->run_at(waiter_->now() + delay, [this, process] {
    if (!restarts_) return;
    if (std::exchange(ranks_[process].due, false)) restart(process);
    --restarts_due_;
    waiter_->wake();
  });
}

void Supervisor::restart(int process) {
  Rank& rank = ranks_[static_cast<std::size_t>(process)];
  rank.exit.reset();
  rank.started = false;
  rank.killed = rank.leaves = rank.ends = false;
  ++rank.restarts;
  try {
    start_rank(process);
  } catch (const Error& error) {
    const std::string how = roles_.name_of(process) + " cannot be started again: " + error.what();
    rank.exit = Exit{-1, 0};
    if (elastic_) return give_place_up(process, how);
    say(how);
    do_without(process);
  }
}

void Supervisor::report_copy(int shard, int server) const {
  const int process = roles_.process_of(Role::Server, server);
  if (ranks_[static_cast<std::size_t>(process)].restarts > 0)
    say(roles_.name_of(process) + " is back, with a copy of shard " + std::to_string(shard) + ".");
}

// Others cannot reach it and have gone on without it.
void Supervisor::end_server(int server) {
  const int process = roles_.process_of(Role::Server, server);
  if (ranks_[process].runs()) hosts_.host_of(process).signal(process, SIGKILL, /*group=*/true);
}

}  // namespace trireme::inline v0::launch
