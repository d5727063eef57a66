// Roles: what the processes of a job are. The coordinator numbers all processes: workers first, then
// servers, then the evaluator. Everything else counts within a role: rank 2 of the workers, server 1.
#pragma once

#include <cstdint>
#include <string>

namespace trireme::inline v0 {

/// Chief: rank 0 of the workers, where the launcher calls it so (TF_CONFIG).
enum class Role : std::uint8_t { Worker, Chief, Server, Evaluator };

namespace rendezvous {

struct Roles {
  int workers = 1, servers = 0;
  bool evaluator = false;

  int processes() const noexcept { return workers + servers + (evaluator ? 1 : 0); }
  Role role_of(int process) const noexcept {
    if (process < workers) return Role::Worker;
    return process < workers + servers ? Role::Server : Role::Evaluator;
  }
  /// The first process of a role, and how many it has.
  int first(Role role) const noexcept;
  int count(Role role) const noexcept;
  /// "rank 2", "server 1", "the evaluator".
  std::string name_of(int process) const;
  friend bool operator==(const Roles&, const Roles&) = default;
};

}  // namespace rendezvous
}  // namespace trireme::inline v0
