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
/// True for an end by a signal, or an exit code from 160 on (peers, coordinator or resources lost).
/// An error in the process's own code would only come again.
bool may_come_back(const Exit& exit);
/// A process's failure, by its own last words, or else by its activity and exit status.
rendezvous::Failure failure_of(int process, const rendezvous::Roles& roles, const std::string& host,
                               const Ending& ending);

}  // namespace trireme::inline v0::launch
