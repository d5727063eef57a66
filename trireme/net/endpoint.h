// Endpoints as they are written: "10.0.0.1:4000", "host:4000", "[fd00::1]:4000". Pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace trireme {
inline namespace v0 {
namespace net {

struct Endpoint {
  std::string host;  // without brackets
  std::uint16_t port = 0;
};

/// IPv6 addresses in brackets, whether they come with them or not.
std::string to_string(const Endpoint& endpoint);
/// Nothing where there is no host, no port from 1 to 65535, or an IPv6 address without brackets.
std::optional<Endpoint> parse_endpoint(const std::string& text);
/// "::1" of "[::1]".
std::string without_brackets(const std::string& host);
/// 127.x.x.x, ::1 or localhost, with or without brackets.
bool is_loopback(const std::string& host);

}  // namespace net
}  // namespace v0
}  // namespace trireme
