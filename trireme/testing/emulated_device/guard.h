// The device guard: what c10::DeviceGuard, c10::Stream, c10::Event and the autograd engine call.
#pragma once

namespace trireme::inline v0::testing {

/// Once a process, after Runtime::create().
void register_guard();

}  // namespace trireme::inline v0::testing
