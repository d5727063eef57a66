// A launcher's coordinator in a process of its own (kept_coordinator.h), with its state in a store: it may be
// killed at any time.
#pragma once

namespace trireme::inline v0::launch {

/// The whole of the process. Standard input is a socket to the launcher. Returns the exit code.
int run_coordinator_process();

}  // namespace trireme::inline v0::launch
