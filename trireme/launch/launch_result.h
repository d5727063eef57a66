// The result of a launch, from how its processes have ended, how it was stopped and its first failure:
// exit codes and the line that is printed last. Called in the progress context, once all have ended.
#pragma once

#include <optional>

#include "trireme/launch/job_stop.h"

namespace trireme::inline v0::launch {

/// `started_all`: the launch got as far as starting its last process.
LaunchResult result_of(const rendezvous::Roles& roles, const Processes& processes,
                       const JobStop& stop, bool started_all,
                       const std::optional<rendezvous::Failure>& failure);

}  // namespace trireme::inline v0::launch
