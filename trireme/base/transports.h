// The names of the transports, and facts that need no connection. net/connect.h connects them.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

namespace trireme::inline v0 {

struct TransportFacts {
  std::string_view name;
  bool maps = false;                  // ranks of one host map one another's memory
  double latency = 0, byte_time = 0;  // seconds of a message and of a byte, on a typical link
};

/// Null if no transport has this name ("auto" is none).
const TransportFacts* find_transport(std::string_view name) noexcept;
/// True if ranks of one host that name `name` map one another's memory; "auto" does.
bool maps_within_host(std::string_view name) noexcept;
/// "auto", the name of every transport, then `more`.
std::vector<std::string> transport_choices(std::initializer_list<std::string_view> more);
/// "auto, shm, tcp, mixed, mpi or sim".
std::string one_of(const std::vector<std::string>& choices);

}  // namespace trireme::inline v0
