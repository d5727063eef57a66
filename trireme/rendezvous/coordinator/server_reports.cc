#include "trireme/rendezvous/coordinator/server_reports.h"

namespace trireme::inline v0::rendezvous {

bool ServerReports::may_tell(Role role, wire::ServerNews::WhatCase what) {
  if (what == wire::ServerNews::WHAT_NOT_SET) return true;
  return role == (what == wire::ServerNews::kAlone ? Role::Worker : Role::Server);
}

ServerReports::Effect ServerReports::take(const Roles& roles, int process,
                                          const wire::ServerNews& report) {
  Effect effect;
  const int server = roles.number_of(process);
  const std::uint64_t before = view().number;
  switch (report.what_case()) {
    case wire::ServerNews::kListensAt:
      effect.incarnation = listens(server, report.listens_at());
      break;
    case wire::ServerNews::kCopy: {
      const wire::NewCopy& copy = report.copy();
      servers_.has_copy(static_cast<int>(copy.shard()), copy.term(), server,
                        static_cast<int>(copy.at().server()), copy.at().incarnation());
      break;
    }
    case wire::ServerNews::kUnreachable:
      effect.dead = take_for_dead(report.unreachable());
      break;
    case wire::ServerNews::kAlone: {
      const bool alone = report.alone() > 0;
      for (const int one : alone ? together_ : alone_)
        if (one != process) effect.other = one;
      if (effect.other) break;
      effect.changed = (alone ? alone_ : together_).insert(process).second && alone;
      if (alone) workers_needed_ = static_cast<int>(report.alone());
      break;
    }
    case wire::ServerNews::kStopSignal:  // nothing of the servers changes
    case wire::ServerNews::WHAT_NOT_SET:
      break;
  }
  effect.view_changed = view().number != before;
  effect.changed |= effect.view_changed;
  return effect;
}

// A process without an answer repeats this. Another one joins only after this one's loss.
std::uint32_t ServerReports::listens(int server, const std::string& address) {
  const ServerView::Server& now = view().servers[static_cast<std::size_t>(server)];
  return now.up && now.address == address ? now.incarnation : servers_.up(server, address);
}

// A server that others cannot reach is no server any more, whatever it does.
std::optional<int> ServerReports::take_for_dead(const wire::ServerProcess& process) {
  const int server = static_cast<int>(process.server());
  if (!view().lives(server, process.incarnation()) || !servers_.can_lose(server))
    return std::nullopt;
  servers_.down(server);
  return server;
}

void ServerReports::save(wire::SavedState& state) const {
  state.set_server_view(view().to_text());
  for (const int worker : alone_) state.add_alone(static_cast<std::uint32_t>(worker));
  state.set_workers_needed(static_cast<std::uint32_t>(workers_needed_));
}

void ServerReports::restore(const ServerView& view, const wire::SavedState& state) {
  servers_ = ServerAuthority(view);
  alone_ = {state.alone().begin(), state.alone().end()};
  workers_needed_ = static_cast<int>(state.workers_needed());
}

}  // namespace trireme::inline v0::rendezvous
