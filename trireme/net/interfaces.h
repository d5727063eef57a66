// This host's network interfaces, and how an address of one of them is chosen.
//
// A choice is an interface's name ("eth0") or a subnet ("10.0.0.0/8", "fd00::/8"). A subnet can be
// the same on hosts whose interfaces have different names. Pure except interfaces().
#pragma once

#include <string>
#include <vector>

namespace trireme::inline v0::net {

struct InterfaceAddress {
  std::string name;     // "eth0"
  std::string address;  // "10.0.0.1", "fd00::1"
};

/// The addresses of interfaces that are up, in the system's order. Leaves out link-local IPv6
/// addresses, because other hosts cannot use them without a scope.
std::vector<InterfaceAddress> interfaces();

/// Returns the address in `all` that `choice` names. If both an IPv4 and an IPv6 address match,
/// `ipv6` decides. Throws ConfigError with a list of the available addresses.
std::string choose_address(const std::vector<InterfaceAddress>& all, const std::string& choice,
                           bool ipv6);

}  // namespace trireme::inline v0::net
