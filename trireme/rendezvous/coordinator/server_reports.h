// ServerReports: reports of a job's processes about parameter servers: where each listens, which
// copies of shards it has, which cannot be reached, and which workers train on their own. Tells
// from them which processes the job can lose.
//
// A part of JobState, under its lock. Knows neither calls nor streams. Only for .cc files of
// rendezvous.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>

#include "trireme/rendezvous/roles.h"
#include "trireme/rendezvous/server_view.h"
#include "trireme/rendezvous/wire_convert.h"

namespace trireme::inline v0::rendezvous {

class ServerReports {
 public:
  explicit ServerReports(int servers) : servers_(servers) {}

  /// Whether a process of this role may make this report.
  static bool may_tell(Role role, wire::ServerNews::WhatCase what);
  struct Effect {
    bool changed = false;                           // the state must be saved
    bool view_changed = false;                      // all must be told
    std::optional<std::uint32_t> incarnation = {};  // of the server that listens now
    std::optional<int> dead = {};                   // a server that was taken for dead
    std::optional<int> other =
        {};  // a worker that trains alone and this one does not, or the reverse
  };
  Effect take(const Roles& roles, int process, const wire::ServerNews& report);

  const ServerView& view() const noexcept { return servers_.view(); }
  bool trains_alone(int worker) const { return alone_.contains(worker); }
  int workers_needed() const noexcept { return workers_needed_; }
  bool can_lose(int server) const noexcept { return servers_.can_lose(server); }
  void lose(int server) { servers_.down(server); }
  /// The server is gone before the job has begun.
  void reset(int server) { servers_.reset(server); }

  void save(wire::SavedState& state) const;
  void restore(const ServerView& view, const wire::SavedState& state);

 private:
  std::uint32_t listens(int server, const std::string& address);
  std::optional<int> take_for_dead(const wire::ServerProcess& process);

  ServerAuthority servers_;
  std::set<int> alone_;     // workers that train on their own
  std::set<int> together_;  // workers that have said that they do not; not saved
  int workers_needed_ = 1;
};

}  // namespace trireme::inline v0::rendezvous
