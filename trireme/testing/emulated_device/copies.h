// Copies within a device, between devices, and between a device and the host, ordered as on CUDA:
//
//   within a device     on its current stream
//   between devices     on the source's current stream, which waits for the target's stream before;
//                       the target's stream waits for the source's afterwards
//   from the host       on the device's current stream. Memory that is not pinned is read at once.
//                       Pinned memory is read late if the copy is not blocking
//   to the host         the host waits, unless the memory is pinned and the copy is not blocking;
//                       then the memory holds 0xff bytes until the copy has run
#pragma once

#include <ATen/core/Tensor.h>

namespace trireme::inline v0::testing {

/// to.copy_(from), where at least one of the two is on an emulated device.
void copy_tensor(const at::Tensor& from, const at::Tensor& to, bool non_blocking);

}  // namespace trireme::inline v0::testing
