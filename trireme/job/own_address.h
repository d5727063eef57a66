// Where peers reach this rank: the address of the interface through which it reaches the
// coordinator, or TRIREME_ADDRESS. A look at the routing table; nothing is sent.
#pragma once

#include <string>

#include "trireme/launch/environment.h"

namespace trireme {
inline namespace v0 {
namespace job {

/// "127.0.0.1" for a coordinator on loopback, and where it cannot be told.
std::string own_address(const std::string& coordinator,
                        const launch::Getenv& get = launch::process_environment);

}  // namespace job
}  // namespace v0
}  // namespace trireme
