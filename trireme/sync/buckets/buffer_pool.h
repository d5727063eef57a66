// BufferPool: scratch memory that is requested again and again in about the same sizes. It keeps
// what is given back, so that its pages need not be mapped anew.
//
// Never holds more buffers than were in use at once: if no free one is large enough, the largest is
// released before a new one is allocated. 64-byte aligned, contents undefined. On a device, memory
// that is given back may be taken at once: streams keep the order of its uses. Not thread safe.
#pragma once

#include <cstddef>
#include <map>
#include <memory>

#include "trireme/tensor/devices/device.h"

namespace trireme::inline v0::parallel {

class BufferPool {
 public:
  /// Shared with the call that transfers it (Buffer::owner), which may outlive the caller.
  struct Lease {
    std::shared_ptr<std::byte> data;
    std::size_t capacity = 0;
  };

  explicit BufferPool(Device device = {}) : device_(device) {}

  Lease take(std::size_t bytes) {
    auto fitting = free_.lower_bound(bytes);
    if (fitting == free_.end()) {
      if (!free_.empty()) free_.erase(std::prev(free_.end()));
      Lease lease;
      lease.capacity = bytes;
      lease.data = tensor::flat_memory(bytes, device_);
      return lease;
    }
    Lease lease = std::move(fitting->second);
    free_.erase(fitting);
    return lease;
  }
  void give(Lease lease) {
    if (lease.data) free_.emplace(lease.capacity, std::move(lease));
  }

 private:
  Device device_;
  std::multimap<std::size_t, Lease> free_;  // by capacity
};

}  // namespace trireme::inline v0::parallel
