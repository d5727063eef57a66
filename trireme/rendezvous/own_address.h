// The address at which peers reach this rank: TRIREME_ADDRESS; otherwise an address of the chosen
// interface; otherwise that of the interface towards the coordinator. Sends nothing.
#pragma once

#include <string>

#include "trireme/rendezvous/launchers/environment.h"

namespace trireme::inline v0::rendezvous {

/// `interface` as in JobOptions; throws ConfigError if it does not exist. If it is empty, returns
/// "127.0.0.1" for a coordinator on loopback, and if there is no route.
std::string own_address(const std::string& coordinator, const std::string& interface,
                        const Getenv& get = process_environment);

/// The address at which other hosts reach this rank, which runs the coordinator. The first of:
/// TRIREME_ADDRESS; an address of the chosen interface; the local address that `host` (this host's
/// name for others; may be empty) resolves to; the address of the default route's interface; the
/// first address that is not loopback; "127.0.0.1".
std::string address_for_others(const std::string& host, const std::string& interface,
                               const Getenv& get = process_environment);

}  // namespace trireme::inline v0::rendezvous
