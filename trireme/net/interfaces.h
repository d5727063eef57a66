// This host's network interfaces, and the choice of an address of one of them.
//
// A choice is the name of an interface ("eth0") or a subnet ("10.0.0.0/8", "fd00::/8"), which may
// be the same on hosts whose interfaces have different names. Values; pure but for interfaces().
#pragma once

#include <string>
#include <vector>

namespace trireme {
inline namespace v0 {
namespace net {

struct InterfaceAddress {
  std::string name;     // "eth0"
  std::string address;  // "10.0.0.1", "fd00::1"
};

/// Of those that are up, as the system lists them. Without link-local IPv6 addresses, which other
/// hosts cannot use as they are.
std::vector<InterfaceAddress> interfaces();

/// The address among `all` that `choice` names; where it has one of each kind, the IPv6 one if
/// `ipv6`. Throws ConfigError that lists what there is.
std::string choose_address(const std::vector<InterfaceAddress>& all, const std::string& choice,
                           bool ipv6);

}  // namespace net
}  // namespace v0
}  // namespace trireme
