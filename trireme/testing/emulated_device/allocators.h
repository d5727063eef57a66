// LibTorch's allocators for the memory of the emulated devices and for pinned host memory.
#pragma once

#include <c10/core/CachingDeviceAllocator.h>

namespace trireme::inline v0::testing {

/// Once a process, after Runtime::create().
void register_allocators();

c10::DeviceAllocator& device_allocator();
/// Pinned host memory. A copy that is not blocking keeps its tensor's memory alive.
c10::Allocator& pinned_allocator();

}  // namespace trireme::inline v0::testing
