// What is said of a rank whose process has ended. Only for launch's own .cc.
#pragma once

#include <string>

#include "trireme/launch/membership.h"
#include "trireme/launch/sources.h"
#include "trireme/launch/status_page.h"

namespace trireme {
inline namespace v0 {
namespace launch {

/// "SIGTERM".
std::string name_of(int signal);
/// The rank's own last words, or where it was and what its exit says.
Failure failure_of(int rank, const std::string& host, const Exit& exit, const StatusPage& status);

}  // namespace launch
}  // namespace v0
}  // namespace trireme
