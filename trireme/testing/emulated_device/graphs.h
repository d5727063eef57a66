// Graphs of the emulated device, by which LibTorch records and replays what a stream is given.
#pragma once

namespace trireme::inline v0::testing {

/// Once a process, after the backend has its name. Does nothing if LibTorch has no graph interface.
void register_graphs();

}  // namespace trireme::inline v0::testing
