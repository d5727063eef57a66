// Roles: the roles of a job's processes. The coordinator numbers all: workers first, then servers,
// the evaluator, and workers that may join later. Elsewhere numbers count within a role: rank 2,
// server 1.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace trireme::inline v0 {

/// Chief: worker 0, if the launcher calls it so (TF_CONFIG).
enum class Role : std::uint8_t { Worker, Chief, Server, Evaluator };

namespace rendezvous {

struct Roles {
  int workers = 1, servers = 0;  // workers: those of the start, which meet
  bool evaluator = false;
  int more_workers = 0;  // may join later, each on its own; numbered from `workers`

  int processes() const noexcept { return of_the_start() + more_workers; }
  Role role_of(int process) const noexcept {
    if (process < workers || process >= of_the_start()) return Role::Worker;
    return process < workers + servers ? Role::Server : Role::Evaluator;
  }
  /// The number of a process within its role, and the reverse.
  int number_of(int process) const noexcept;
  int process_of(Role role, int number) const noexcept;
  /// The first process of a role, and how many it has at the start.
  int first(Role role) const noexcept;
  int count(Role role) const noexcept;
  /// "rank 2", "server 1", "the evaluator".
  std::string name_of(int process) const;
  /// "rank 2, server 0"; of more than eight, the first eight and how many others.
  std::string names_of(const std::vector<int>& processes) const;
  friend bool operator==(const Roles&, const Roles&) = default;

 private:
  int of_the_start() const noexcept { return workers + servers + (evaluator ? 1 : 0); }
};

}  // namespace rendezvous
}  // namespace trireme::inline v0
