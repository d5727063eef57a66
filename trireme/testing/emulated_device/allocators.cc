#include "trireme/testing/emulated_device/allocators.h"

#include <ATen/core/CachingHostAllocator.h>

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "trireme/testing/emulated_device/current_stream.h"
#include "trireme/testing/emulated_device/runtime.h"

namespace trireme::inline v0::testing {
namespace {

using c10::CachingDeviceAllocator::DeviceStats;

void free_device_memory(void* address) {
  if (Runtime* const runtime = Runtime::find()) runtime->free(address);
}

void free_pinned_memory(void* address) {
  if (Runtime* const runtime = Runtime::find()) runtime->forget_pinned(address);
  std::free(address);
}

c10::CachingAllocator::Stat stat(std::size_t current, std::size_t peak) {
  c10::CachingAllocator::Stat made;
  made.current = static_cast<std::int64_t>(current);
  made.peak = static_cast<std::int64_t>(peak);
  return made;
}

struct EmulatedAllocator final : c10::DeviceAllocator {
  c10::DataPtr allocate(std::size_t bytes) override {
    Runtime& runtime = Runtime::get();
    const int device = current_device();
    if (bytes == 0) return {nullptr, emulated_device(device)};
    void* const address = runtime.allocate(device, bytes, current_stream(device));
    if (!address) throw_out_of_memory(runtime.memory(device), device, bytes);
    return {address, address, &free_device_memory, emulated_device(device)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &free_device_memory; }
  void copy_data(void* to, const void* from, std::size_t bytes) const override {
    Runtime& runtime = Runtime::get();
    const int device = runtime.device_of_address(to);
    TORCH_CHECK(device >= 0 && runtime.device_of_address(from) == device,
                "copy_data() takes two addresses of one emulated device");
    runtime.launch(current_stream(device), {"copy of a storage",
                                            {{from, bytes, false}, {to, bytes, true}},
                                            [to = runtime.hidden(to), from = runtime.hidden(from),
                                             bytes] { std::memmove(to, from, bytes); }});
  }

  bool initialized() override { return true; }
  void emptyCache(c10::MempoolId_t) override {}
  void recordStream(const c10::DataPtr& data, c10::Stream stream) override {
    Runtime::get().record_stream(data.get(), from_c10(stream));
  }
  DeviceStats getDeviceStats(c10::DeviceIndex device) override {
    const EmulatedMemory memory = Runtime::get().memory(device);
    DeviceStats stats;
    stats.allocated_bytes[0] = stat(memory.allocated, memory.peak_allocated);
    stats.requested_bytes[0] = stats.allocated_bytes[0];
    stats.reserved_bytes[0] = stat(memory.reserved, memory.peak_reserved);
    stats.active_bytes[0] = stats.reserved_bytes[0];
    stats.num_ooms = static_cast<std::int64_t>(Runtime::get().num_out_of_memory(device));
    return stats;
  }
  void resetAccumulatedStats(c10::DeviceIndex) override {}
  void resetPeakStats(c10::DeviceIndex device) override { Runtime::get().reset_peak(device); }
  /// Free and total bytes. Freed memory that a stream still uses counts as free.
  std::pair<std::size_t, std::size_t> getMemoryInfo(c10::DeviceIndex device) override {
    const EmulatedMemory memory = Runtime::get().memory(device);
    return {memory.capacity - memory.allocated, memory.capacity};
  }

 private:
  [[noreturn]] static void throw_out_of_memory(const EmulatedMemory& memory, int device,
                                               std::size_t bytes) {
    TORCH_CHECK_WITH(OutOfMemoryError, false, "emulated:", device, " is out of memory: ", bytes,
                     " bytes were asked for, ", memory.allocated, " of its ", memory.capacity,
                     " bytes are in tensors");
    std::abort();  // not reached
  }
};

struct PinnedAllocator final : at::HostAllocator {
  at::DataPtr allocate(std::size_t bytes) override {
    if (bytes == 0) return {nullptr, at::kCPU};
    constexpr std::size_t kAlignment = 4096;
    const std::size_t taken = std::bit_ceil(bytes);  // as CUDA's
    void* const address = std::aligned_alloc(kAlignment, std::max(taken, kAlignment));
    TORCH_CHECK(address, "no host memory for ", taken, " pinned bytes");
    Runtime::get().adopt_pinned(address, taken);
    return {address, address, &free_pinned_memory, at::kCPU};
  }
  at::DeleterFnPtr raw_deleter() const override { return &free_pinned_memory; }
  void copy_data(void* to, const void* from, std::size_t bytes) const override {
    std::memcpy(to, from, bytes);
  }
  /// A copy uses the memory: waits for it, so the memory is not reused too early. CUDA's allocator
  /// does not wait, so the race check learns nothing from this.
  bool record_event(void* address, void*, c10::Stream stream) override {
    if (!Runtime::get().is_pinned(address)) return false;
    Runtime::get().wait(Runtime::get().end_of(from_c10(stream)));
    return true;
  }
  void empty_cache() override {}
  at::HostStats get_stats() override { return {}; }
  void reset_accumulated_stats() override {}
  void reset_peak_stats() override {}
};

}  // namespace

c10::DeviceAllocator& device_allocator() {
  static auto* const allocator = new EmulatedAllocator();
  return *allocator;
}

c10::Allocator& pinned_allocator() {
  static auto* const allocator = new PinnedAllocator();
  return *allocator;
}

void register_allocators() {
  c10::SetAllocator(c10::DeviceType::PrivateUse1, &device_allocator());
  at::setHostAllocator(c10::DeviceType::PrivateUse1,
                       static_cast<at::HostAllocator*>(&pinned_allocator()));
}

}  // namespace trireme::inline v0::testing
