// The launcher's part on another host: what `trireme launch-host` runs. ssh starts it; it takes
// messages (host_messages.h) from standard input, starts and signals processes, and sends their
// lines and ends to standard output. When standard input ends it kills them all, and ends.
#pragma once

namespace trireme::inline v0::launch {

/// Returns the exit code. Call it on the main thread, before other threads exist.
int run_host_agent();

}  // namespace trireme::inline v0::launch
