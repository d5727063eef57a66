// Memory of the emulated machine (runtime.h).
//
// A free takes effect when the streams of the block have done the work that they had when the host
// freed it. Then the bytes are poisoned, and other blocks may take them.
#include <algorithm>
#include <cstring>
#include <iterator>
#include <utility>

#include "trireme/testing/emulated_device/runtime.h"

namespace trireme::inline v0::testing {

void* Runtime::allocate(int device, std::size_t bytes, StreamIndex stream) {
  Lock lock(streams_.mutex());
  Device& on = devices_[device];
  std::byte* address = on.memory.take(bytes);
  if (!address) {  // as CUDA's allocator does before it gives up
    streams_.wait(lock, streams_.end_of(on.frees));
    address = on.memory.take(bytes);
  }
  if (!address) {
    ++on.num_out_of_memory;
    return nullptr;
  }
  Recording* const recording = all_[stream].recording.get();
  on.blocks[address] = {bytes, stream, {}, false, recording != nullptr, false};
  if (recording) recording->blocks.push_back(address);
  EmulatedMemory& counts = on.counts;
  counts.allocated += bytes;
  counts.peak_allocated = std::max(counts.peak_allocated, counts.allocated);
  counts.reserved = on.memory.taken();
  counts.peak_reserved = std::max(counts.peak_reserved, counts.reserved);
  // The block belongs to the stream from the stream's present point on.
  const Access whole[] = {{address, bytes, true}};
  VectorClock& known = all_[stream].known;
  known.join(host_knows_);
  races_.forget(address, bytes);
  races_.access("the allocation of its memory", streams_.end_of(stream), known, whole);
  return address;
}

void Runtime::free(void* address) {
  std::optional<RaceReport> found;
  {
    const Lock lock(streams_.mutex());
    const int device = device_of_address(address);
    Device& on = devices_[device];
    auto* const begin = static_cast<std::byte*>(address);
    Block& block = on.blocks.at(begin);
    block.unused = true;
    if (block.recorded) return;
    block.freed = true;
    on.counts.allocated -= block.bytes;
    VectorClock known = all_[block.stream].known;
    known.join(host_knows_);
    std::vector<StreamPoint> after{streams_.end_of(block.stream)};
    for (const StreamIndex other : block.other_streams) {
      known.join(all_[other].known);
      after.push_back(streams_.end_of(other));
    }
    const Access whole[] = {{address, block.bytes, true}};
    const auto race = races_.access("the free of its memory", after.front(), known, whole);
    if (race) found = describe(*race, RaceKind::FreeInUse);
    streams_.push(lock, on.frees,
                  {"a free", std::move(after), [this, device, begin, bytes = block.bytes] {
                     finish_free(device, begin, bytes);
                   }});
  }
  if (found) report(*found);
}

void Runtime::finish_free(int device, std::byte* address, std::size_t bytes) {
  Device& on = devices_[device];
  std::memset(on.memory.hidden(address), kPoisonByte, bytes);
  const Lock lock(streams_.mutex());
  on.memory.give_back(address);
  on.blocks.erase(address);
  on.counts.reserved = on.memory.taken();
  races_.forget(address, bytes);
}

void Runtime::record_stream(void* address, StreamIndex stream) {
  const Lock lock(streams_.mutex());
  const int device = device_of_address(address);
  if (device < 0) return;
  const auto block = devices_[device].blocks.find(static_cast<std::byte*>(address));
  if (block == devices_[device].blocks.end() || block->second.stream == stream) return;
  auto& others = block->second.other_streams;
  if (std::find(others.begin(), others.end(), stream) == others.end()) others.push_back(stream);
}

const Runtime::Block* Runtime::block_of(const void* address) const {
  const int device = device_of_address(address);
  if (device < 0) return nullptr;
  const auto* const at = static_cast<const std::byte*>(address);
  const auto& blocks = devices_[device].blocks;
  auto after = blocks.upper_bound(const_cast<std::byte*>(at));
  if (after == blocks.begin()) return nullptr;
  const auto& [begin, block] = *std::prev(after);
  return at < begin + block.bytes ? &block : nullptr;
}

int Runtime::device_of_address(const void* address) const {
  for (int i = 0; i < num_devices_; ++i)
    if (devices_[i].memory.owns(address)) return i;
  return -1;
}

void* Runtime::hidden(const void* address) const {
  const int device = device_of_address(address);
  return device < 0 ? nullptr : devices_[device].memory.hidden(address);
}

void Runtime::adopt_pinned(void* address, std::size_t bytes) {
  const Lock lock(streams_.mutex());
  pinned_[address] = bytes;
}

void Runtime::forget_pinned(void* address) {
  const Lock lock(streams_.mutex());
  const auto found = pinned_.find(address);
  if (found == pinned_.end()) return;
  races_.forget(address, found->second);
  pinned_.erase(found);
}

std::size_t Runtime::pinned_bytes() {
  const Lock lock(streams_.mutex());
  std::size_t bytes = 0;
  for (const auto& [begin, size] : pinned_) bytes += size;
  return bytes;
}

bool Runtime::is_pinned(const void* address) {
  const Lock lock(streams_.mutex());
  const auto after = pinned_.upper_bound(address);
  if (after == pinned_.begin()) return false;
  const auto& [begin, bytes] = *std::prev(after);
  return static_cast<const std::byte*>(address) < static_cast<const std::byte*>(begin) + bytes;
}

bool Runtime::is_settled(const void* begin, std::size_t bytes) {
  const Lock lock(streams_.mutex());
  const std::vector<StreamPoint> points = races_.touched_by(begin, bytes);
  return std::all_of(points.begin(), points.end(),
                     [this](StreamPoint point) { return streams_.reached(point); });
}

EmulatedMemory Runtime::memory(int device) {
  check_device(device);
  const Lock lock(streams_.mutex());
  return devices_[device].counts;
}

void Runtime::reset_peak(int device) {
  check_device(device);
  const Lock lock(streams_.mutex());
  EmulatedMemory& counts = devices_[device].counts;
  counts.peak_allocated = counts.allocated;
  counts.peak_reserved = counts.reserved;
}

std::uint64_t Runtime::num_out_of_memory(int device) {
  const Lock lock(streams_.mutex());
  return devices_[device].num_out_of_memory;
}

}  // namespace trireme::inline v0::testing
