// DeviceCopies: copies between a device's memory and the host's, in the order of the device's
// streams. `tensor/devices/device.h` makes it for every device that LibTorch has.
//
// Any thread. Only DeviceMark::wait_on() may wait for the device.
#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include "trireme/base/buffer.h"

namespace trireme::inline v0::comm {

/// Memory of the host that a device copies from and to by itself (pinned).
class HostBlock {
 public:
  virtual ~HostBlock() = default;
  virtual std::span<std::byte> bytes() noexcept = 0;
};

/// A point in the order of a device's streams.
class DeviceMark {
 public:
  virtual ~DeviceMark() = default;
  /// True if the device has got there. Throws an error that the device reports.
  virtual bool reached() = 0;
  /// Later work on `stream` starts after this point. The host waits if `stream` is neither the
  /// calling thread's current one nor unnamed.
  virtual void wait_on(Stream stream) = 0;
};

struct StagedBuffer {
  Buffer buffer;  // on the device
  std::shared_ptr<HostBlock> host;
};

class DeviceCopies {
 public:
  virtual ~DeviceCopies() = default;
  /// The stream to which the calling thread now gives work for `device`. Buffers without a stream
  /// belong to it.
  virtual Stream current_stream(Device device) = 0;
  virtual std::shared_ptr<HostBlock> host_block(std::size_t bytes) = 0;
  /// Memory of the device, zeroed in the calling thread's current stream.
  virtual std::shared_ptr<std::byte> device_memory(std::size_t bytes, Device device) = 0;
  /// Starts to copy buffers of one device to the host, after all that the calling thread has given
  /// to the device's current stream so far. Without buffers: only marks that point.
  virtual std::shared_ptr<DeviceMark> fetch(Device device,
                                            std::span<const StagedBuffer> buffers) = 0;
  /// Starts to copy within one device, in the calling thread's current stream there. If `to` and
  /// `from` are the same memory: only marks the end of the stream.
  virtual std::shared_ptr<DeviceMark> copy(const Buffer& to, const Buffer& from) = 0;
  /// Starts to copy from the host to buffers of one device.
  virtual std::shared_ptr<DeviceMark> store(Device device,
                                            std::span<const StagedBuffer> buffers) = 0;
};

}  // namespace trireme::inline v0::comm
