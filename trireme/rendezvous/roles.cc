#include "trireme/rendezvous/roles.h"

namespace trireme::inline v0::rendezvous {

int Roles::first(Role role) const noexcept {
  if (role == Role::Server) return workers;
  return role == Role::Evaluator ? workers + servers : 0;
}

int Roles::count(Role role) const noexcept {
  if (role == Role::Server) return servers;
  if (role == Role::Evaluator) return evaluator ? 1 : 0;
  return workers;
}

std::string Roles::name_of(int process) const {
  const Role role = role_of(process);
  if (role == Role::Evaluator) return "the evaluator";
  return (role == Role::Server ? "server " : "rank ") + std::to_string(process - first(role));
}

}  // namespace trireme::inline v0::rendezvous
