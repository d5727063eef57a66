// Describes the end of a rank's process. Only for .cc files of launch.
#pragma once

#include <string>

#include "trireme/launch/hosts/host.h"
#include "trireme/rendezvous/membership.h"

namespace trireme::inline v0::launch {

/// "SIGTERM".
std::string name_of(int signal);
/// "was killed by signal 9 (SIGKILL)", "ended with exit code 1".
std::string how_it_ended(const Exit& exit);
/// The process was killed, or lost its peers. An error in its own code would only come again.
bool may_come_back(const Exit& exit);
/// A process's failure: its own last words, or its activity and exit status.
rendezvous::Failure failure_of(int process, const rendezvous::Roles& roles, const std::string& host,
                               const Ending& ending);

}  // namespace trireme::inline v0::launch
