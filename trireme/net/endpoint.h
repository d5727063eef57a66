// Text form of endpoints: "10.0.0.1:4000", "host:4000", "[fd00::1]:4000". Pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace trireme::inline v0::net {

struct Endpoint {
  std::string host;  // without brackets
  std::uint16_t port = 0;
};

/// Writes an IPv6 address in brackets, whether or not `endpoint.host` has them.
std::string to_string(const Endpoint& endpoint);
/// nullopt if the host is missing, the port is not 1-65535, or an IPv6 address has no brackets.
std::optional<Endpoint> parse_endpoint(const std::string& text);
/// Turns "[::1]" into "::1".
std::string without_brackets(const std::string& host);
/// True for 127.x.x.x, ::1 and localhost, with or without brackets.
bool is_loopback(const std::string& host);

}  // namespace trireme::inline v0::net
