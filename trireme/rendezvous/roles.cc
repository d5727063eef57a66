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

int Roles::number_of(int process) const noexcept {
  const bool later = process >= of_the_start();
  return later ? workers + process - of_the_start() : process - first(role_of(process));
}

int Roles::process_of(Role role, int number) const noexcept {
  const bool later = role == Role::Worker && number >= workers;
  return later ? of_the_start() + number - workers : first(role) + number;
}

std::string Roles::name_of(int process) const {
  const Role role = role_of(process);
  if (role == Role::Evaluator) return "the evaluator";
  return (role == Role::Server ? "server " : "rank ") + std::to_string(number_of(process));
}

std::string Roles::names_of(const std::vector<int>& processes) const {
  constexpr std::size_t kMost = 8;
  std::string text;
  for (std::size_t i = 0; i < processes.size() && i < kMost; ++i)
    text += (i > 0 ? ", " : "") + name_of(processes[i]);
  if (processes.size() > kMost)
    text += " and " + std::to_string(processes.size() - kMost) + " others";
  return text;
}

}  // namespace trireme::inline v0::rendezvous
