// Where peers reach this rank: TRIREME_ADDRESS, else an address of the chosen interface, else that
// of the interface through which this rank reaches the coordinator. A look at the routing table;
// nothing is sent.
#pragma once

#include <string>

#include "trireme/launch/environment.h"

namespace trireme {
inline namespace v0 {
namespace job {

/// `interface` as in JobOptions; ConfigError if there is none such. Where it is empty: "127.0.0.1"
/// for a coordinator on loopback, and where it cannot be told.
std::string own_address(const std::string& coordinator, const std::string& interface,
                        const launch::Getenv& get = launch::process_environment);

/// Where ranks on other hosts reach this one, which keeps the coordinator: TRIREME_ADDRESS, else an
/// address of the chosen interface, else the one that `host` (a name by which others know this
/// host; may be empty) has here, else that of the interface with the default route, else the first
/// one that is not loopback. "127.0.0.1" where there is no other.
std::string address_for_others(const std::string& host, const std::string& interface,
                               const launch::Getenv& get = launch::process_environment);

}  // namespace job
}  // namespace v0
}  // namespace trireme
