// The address at which peers reach this rank: TRIREME_ADDRESS; otherwise an address of the chosen
// interface; otherwise that of the interface towards the coordinator. Sends nothing.
#pragma once

#include <netdb.h>

#include <functional>
#include <string>

#include "trireme/rendezvous/launchers/environment.h"

namespace trireme::inline v0::rendezvous {

/// getaddrinfo(), or a test's.
using LookUp =
    std::function<int(const char* host, const char* port, const addrinfo* hints, addrinfo** found)>;

/// `interface` as in JobOptions; throws ConfigError if it does not exist. If it is empty, returns
/// "127.0.0.1" for a coordinator on loopback, if there is no route, and, with a warning, if the
/// coordinator's name is not known. Waits up to 5 s for a name server that is away for a moment.
std::string own_address(const std::string& coordinator, const std::string& interface,
                        const Getenv& get = process_environment,
                        const LookUp& look_up = getaddrinfo);

/// The address at which other hosts reach this rank, which runs the coordinator. The first of:
/// TRIREME_ADDRESS; an address of the chosen interface; the local address that `host` (this host's
/// name for others; may be empty) resolves to; the address of the default route's interface; the
/// first address that is not loopback; "127.0.0.1".
std::string address_for_others(const std::string& host, const std::string& interface,
                               const Getenv& get = process_environment);

}  // namespace trireme::inline v0::rendezvous
