// The operators of the emulated device: those with a separate implementation (memory, copies, the
// choice of an attention kernel), and the fallback for all others that the CPU has.
#pragma once

namespace trireme::inline v0::testing {

/// Once a process, after Runtime::create().
void register_operators();

}  // namespace trireme::inline v0::testing
