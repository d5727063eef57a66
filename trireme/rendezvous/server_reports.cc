// The coordinator's service for jobs with parameter servers: who listens where, who has which shard, and
// what the job can lose.
#include "trireme/rendezvous/coordinator_service.h"

namespace trireme::inline v0::rendezvous {

bool Service::may_tell(int process, wire::ServerNews::WhatCase what) const {
  if (what == wire::ServerNews::WHAT_NOT_SET) return true;
  const Role role = members_.roles().role_of(process);
  return role == (what == wire::ServerNews::kAlone ? Role::Worker : Role::Server);
}

grpc::ServerUnaryReactor* Service::TellOfServers(grpc::CallbackServerContext* context,
                                                 const wire::ServerNews* request,
                                                 wire::ServerViewReply* reply) {
  return serve(context, [=, this] { return tell_of_servers(*request, *reply); });
}

grpc::Status Service::tell_of_servers(const wire::ServerNews& request,
                                      wire::ServerViewReply& reply) {
  std::optional<int> dead;
  bool copied = false, changed = false;
  {
    std::lock_guard lock(mutex_);
    const int process = rank_of(request.session());
    const auto what = request.what_case();
    if (process < 0 || !may_tell(process, what))
      return {grpc::StatusCode::UNAUTHENTICATED, "the caller may not say that"};
    const int server = members_.roles().number_of(process);
    const std::uint64_t before = servers_.view().number;
    if (what == wire::ServerNews::kListensAt) {
      reply.set_incarnation(listens(server, request.listens_at()));
    } else if (what == wire::ServerNews::kCopy) {
      const wire::NewCopy& copy = request.copy();
      servers_.has_copy(static_cast<int>(copy.shard()), copy.term(), server,
                        static_cast<int>(copy.at().server()), copy.at().incarnation());
    } else if (what == wire::ServerNews::kUnreachable) {
      dead = taken_for_dead(request.unreachable());
    } else if (what == wire::ServerNews::kAlone) {
      changed = alone_.insert(process).second;
    }
    changed |= servers_.view().number != before;
    if (changed && !save()) return {grpc::StatusCode::UNAVAILABLE, "the coordinator has no store"};
    copied = what == wire::ServerNews::kCopy && servers_.view().number != before;
    tell_server_view(before);
    reply.set_view(servers_.view().to_text());
  }
  if (dead && options_.on_server_lost) options_.on_server_lost(*dead);
  if (copied && options_.on_new_copy)
    options_.on_new_copy(static_cast<int>(request.copy().shard()),
                         static_cast<int>(request.copy().at().server()));
  return grpc::Status::OK;
}

// A process that had no answer says it again. Another one joins only after this one was taken for dead.
std::uint32_t Service::listens(int server, const std::string& address) {
  const ServerView::Server& now = servers_.view().servers[static_cast<std::size_t>(server)];
  return now.up && now.address == address ? now.incarnation : servers_.up(server, address);
}

// A server that others cannot reach is no server any more, whatever it does.
std::optional<int> Service::taken_for_dead(const wire::ServerProcess& process) {
  const int server = static_cast<int>(process.server());
  if (!servers_.view().lives(server, process.incarnation()) || !servers_.can_lose(server))
    return std::nullopt;
  servers_.down(server);
  return server;
}

void Service::tell_server_view(std::uint64_t before) {
  if (servers_.view().number == before) return;
  wire::News news;
  news.set_server_view(servers_.view().to_text());
  tell_all(news);
}

bool Service::can_lose(int process) const {
  const Roles& roles = members_.roles();
  if (roles.role_of(process) == Role::Server) return servers_.can_lose(roles.number_of(process));
  return elastic() || trains_alone(process);
}

std::optional<ServerView> Service::lose_server(int server) {
  if (!servers_.can_lose(server)) return std::nullopt;
  const std::uint64_t before = servers_.view().number;
  servers_.down(server);
  members_.forget(members_.roles().process_of(Role::Server, server));
  if (!save()) return std::nullopt;
  tell_server_view(before);
  return servers_.view();
}

void Service::reset_server(int server) {
  const std::uint64_t before = servers_.view().number;
  servers_.reset(server);
  forget(members_.roles().process_of(Role::Server, server));
  tell_server_view(before);
}

bool Service::lose_worker(int worker) {
  if (!trains_alone(worker)) return false;
  members_.forget(worker);
  return save();
}

}  // namespace trireme::inline v0::rendezvous
