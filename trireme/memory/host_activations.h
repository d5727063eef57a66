// The ActivationStore of a device: pinned memory of the host. Streams copy, and no host waits:
//
//   compute  | block 0 | block 1 | block 2 | ...     backward | block 2 | block 1 | block 0 |
//   copies             | out 0   | out 1   |         copies   | in 1    | in 0    |
//
// Before block i the computing stream waits for the copies of block i-2, whose device memory is then
// free. When backward reads the first tensor of block i, copies of block i-1 start. One thread runs
// forward and backward. Graphs that still need saved tensors keep their memory alive.
#pragma once

#include <c10/core/Device.h>

#include <memory>

#include "trireme/memory/activation_store.h"

namespace trireme::inline v0::memory {

std::shared_ptr<ActivationStore> make_host_activations(c10::Device device);

}  // namespace trireme::inline v0::memory
