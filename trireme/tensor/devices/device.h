// Devices: LibTorch's and base's names for them, and copies between a device and the host.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "trireme/base/buffer.h"
#include "trireme/base/work.h"

namespace trireme::inline v0 {
namespace comm {
class DeviceCopies;
}
namespace tensor {

at::Device at_device(Device device);
/// A device without an index gets index 0. ConfigError for types that no rank trains on (meta,
/// ...).
Device device_of(at::Device device);

/// The calling thread's current stream of a device, as the device's own library names it.
Stream current_stream(Device device);
/// The calling thread waits for `work` if its memory is the CPU's. If it is a device's, the
/// thread's current stream there waits instead (Work::wait_on()): what is queued after this call
/// finds the result. Throws the error of a call that has failed by then; one that fails later breaks
/// its communicator.
void wait_for(const Work& work, at::Device device);

/// Copies run in separate streams, beside the computing stream. Host memory is pinned.
std::shared_ptr<comm::DeviceCopies> make_device_copies();

/// At least `bytes` bytes of a device's memory, 64-byte aligned, contents undefined.
std::shared_ptr<std::byte> flat_memory(std::size_t bytes, Device device);

/// `tensor` in the host's memory: the same tensor, or a copy that is complete on return.
at::Tensor on_host(const at::Tensor& tensor);
/// The numbers in fp64 tensors of any shapes, in row-major order, one tensor after the other: one
/// copy, for which the host waits, if all are on one device.
std::vector<double> numbers_on_host(std::span<const at::Tensor> tensors);
/// numbers_on_host() for tensors of one element and any type; 0 for an undefined tensor.
std::vector<double> numbers_of(std::span<const at::Tensor> scalars);

/// The host's `tensor` on `device`: itself for the CPU, else a copy. The host does not wait for it.
at::Tensor on_device(const at::Tensor& tensor, at::Device device);

}  // namespace tensor
}  // namespace trireme::inline v0
