// Describes the end of a rank's process. Only for .cc files of launch.
#pragma once

#include <string>

#include "trireme/launch/membership.h"
#include "trireme/launch/sources.h"
#include "trireme/launch/status_page.h"

namespace trireme::inline v0::launch {

/// "SIGTERM".
std::string name_of(int signal);
/// A rank's failure: its own last words, or its activity and exit status.
Failure failure_of(int rank, const std::string& host, const Exit& exit, const StatusPage& status);

}  // namespace trireme::inline v0::launch
