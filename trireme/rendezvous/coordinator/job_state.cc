#include "trireme/rendezvous/coordinator/job_state.h"

#include <algorithm>
#include <utility>

#include "trireme/base/error.h"

namespace trireme::inline v0::rendezvous {

JobState::JobState(CoordinatorOptions from)
    : options(std::move(from)),
      members(options.roles),
      sessions(members.size()),
      streams(members.size()),
      servers(options.roles.servers),
      saver(options.store, options.store_patience, options.on_store_lost) {
  if (options.version.empty()) options.version = kWireVersion;
  if (elastic()) adopt(*options.elastic);
  if (options.store) restore();
}

// The others go on without the evaluator.
bool JobState::record(Failure failure) {
  if (roles().role_of(failure.rank) == Role::Evaluator) return false;
  const bool secondary = failure.secondary();
  if (failure.host.empty()) failure.host = members.host(failure.rank);
  const bool first = members.fail(std::move(failure));
  if (first && !secondary) announce();
  return first;
}

void JobState::announce() {
  const auto failure = members.first_failure();
  if (announced_ || !failure) return;
  announced_ = true;
  wire::News news;
  fill(*failure, *news.mutable_failure());
  streams.tell_all(news);
  exchanges.break_off(failure->sentence);
}

void JobState::gone(int process, const std::string& why) {
  // The others go on without the evaluator.
  if (roles().role_of(process) != Role::Evaluator && matters(process)) exchanges.set_broken(why);
  exchanges.fail_awaiting(process, why);
  wire::News news;
  news.set_left_rank(static_cast<std::uint32_t>(process));
  streams.tell_all(news);
}

void JobState::forget(int process) {
  sessions.end(process);
  streams.finish(process, no_session());
  vacate(process);
  save();
}

void JobState::vacate(int process) {
  members.forget(process);
  streams.begin_anew(process);
}

bool JobState::can_lose(int process) const {
  if (roles().role_of(process) == Role::Server) return servers.can_lose(roles().number_of(process));
  return elastic() || servers.trains_alone(process);
}

std::optional<ServerView> JobState::lose_server(int server) {
  if (!servers.can_lose(server)) return std::nullopt;
  const std::uint64_t before = servers.view().number;
  servers.lose(server);
  vacate(roles().process_of(Role::Server, server));
  if (!save()) return std::nullopt;
  if (servers.view().number != before) tell_server_view();
  return servers.view();
}

void JobState::reset_server(int server) {
  const std::uint64_t before = servers.view().number;
  servers.reset(server);
  forget(roles().process_of(Role::Server, server));
  if (servers.view().number != before) tell_server_view();
}

bool JobState::lose_worker(int worker) {
  if (!servers.trains_alone(worker)) return false;
  vacate(worker);
  return save();
}

// Rank 0 validates and saves.
bool JobState::lose_worker_for_good(int worker) {
  if (worker == 0) return false;
  int others = 0, ended = 0;
  for (int process = 0; process < members.size(); ++process) {
    if (process == worker || lost_.contains(process) || roles().role_of(process) != Role::Worker)
      continue;
    others += members.phase(process) == Phase::Joined;
    ended += members.phase(process) == Phase::Left;
  }
  const int needed = std::min(servers.workers_needed(), roles().workers - ended);
  if (others < needed || !lose_worker(worker)) return false;
  lost_.insert(worker);
  return true;
}

void JobState::adopt(const Epoch& epoch) {
  epoch_ = epoch;
  members.set_members(epoch.members, steady_now());
}

void JobState::regroup(const Epoch& epoch) {
  adopt(epoch);
  exchanges.drop_complete();
  if (!save()) return;
  exchanges.begin_anew("the job regroups: " + epoch.cause);
  wire::News news;
  fill(epoch_, *news.mutable_epoch());
  streams.tell_all(news);
}

void JobState::stop(int signal) {
  end_.stop_signal = signal;
  if (!save()) return;
  wire::News news;
  news.set_stop_signal(signal);
  streams.tell_all(news);
}

void JobState::finish(bool workers_only, int exit_code) {
  (workers_only ? end_.workers : end_.all) = true;
  end_.exit_code = exit_code;
  if (!save()) return;
  wire::News news;
  news.set_finished(true);
  streams.tell_those([this](int process) { return end_.told_to(roles().role_of(process)); }, news);
}

void JobState::close() {
  exchanges.break_off("the launcher is ending");
  // Another coordinator goes on from the store.
  streams.close(saver.outlives_this()
                    ? grpc::Status(grpc::StatusCode::UNAVAILABLE, "the coordinator ends")
                    : grpc::Status::OK);
}

void JobState::tell_present(Watcher& watcher) const {
  wire::News news;
  news.set_watching(true);
  watcher.push(news);
  if (end_.stop_signal != 0) {
    news.set_stop_signal(end_.stop_signal);
    watcher.push(news);
  }
  if (end_.told_to(roles().role_of(watcher.process()))) {
    news.set_finished(true);
    watcher.push(news);
  }
  if (elastic()) {
    fill(epoch_, *news.mutable_epoch());
    watcher.push(news);
  }
  if (options.roles.servers > 0) {
    news.set_server_view(servers.view().to_text());
    watcher.push(news);
  }
  if (announced_) {
    fill(*members.first_failure(), *news.mutable_failure());
    watcher.push(news);
  }
}

void JobState::tell_server_view() {
  wire::News news;
  news.set_server_view(servers.view().to_text());
  streams.tell_all(news);
}

}  // namespace trireme::inline v0::rendezvous
