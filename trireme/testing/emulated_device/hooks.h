// The functions that LibTorch asks of a PrivateUse1 backend beyond its guard: generators, pinned
// memory, resizing.
#pragma once

namespace trireme::inline v0::testing {

/// Once a process, after Runtime::create().
void register_hooks();

}  // namespace trireme::inline v0::testing
