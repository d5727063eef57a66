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

}  // namespace job
}  // namespace v0
}  // namespace trireme
