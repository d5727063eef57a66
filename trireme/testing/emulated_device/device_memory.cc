#include "trireme/testing/emulated_device/device_memory.h"

#include <c10/util/Exception.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <iterator>

namespace trireme::inline v0::testing {
namespace {

constexpr std::size_t kGranularity = 512;  // as in CUDA's caching allocator
constexpr std::size_t kPage = 4096;

std::size_t rounded_up(std::size_t bytes, std::size_t unit) {
  return std::max<std::size_t>(1, (bytes + unit - 1) / unit) * unit;
}

std::byte* mapped(int file, std::size_t bytes, int protection) {
  void* const address = mmap(nullptr, bytes, protection, MAP_SHARED | MAP_NORESERVE, file, 0);
  TORCH_CHECK(address != MAP_FAILED, "the emulated device cannot map ", bytes,
              " bytes: ", std::strerror(errno));
  return static_cast<std::byte*>(address);
}

}  // namespace

DeviceMemory::DeviceMemory(std::size_t bytes) : capacity_(rounded_up(bytes, kPage)) {
  const int file = memfd_create("emulated_device", MFD_CLOEXEC);
  TORCH_CHECK(file >= 0 && ftruncate(file, static_cast<off_t>(capacity_)) == 0,
              "the emulated device cannot make ", capacity_,
              " bytes of memory: ", std::strerror(errno));
  shown_ = mapped(file, capacity_, PROT_NONE);
  hidden_ = mapped(file, capacity_, PROT_READ | PROT_WRITE);
  close(file);
  gaps_[0] = capacity_;
}

DeviceMemory::~DeviceMemory() {
  munmap(shown_, capacity_);
  munmap(hidden_, capacity_);
}

std::byte* DeviceMemory::take(std::size_t bytes) {
  const std::size_t size = rounded_up(bytes, kGranularity);
  for (auto gap = gaps_.begin(); gap != gaps_.end(); ++gap) {
    if (gap->second < size) continue;
    const auto [offset, room] = *gap;
    gaps_.erase(gap);
    if (room > size) gaps_[offset + size] = room - size;
    if (offset + size > poisoned_) {
      std::memset(hidden_ + poisoned_, kPoisonByte, offset + size - poisoned_);
      poisoned_ = offset + size;
    }
    taken_blocks_[offset] = size;
    taken_ += size;
    return shown_ + offset;
  }
  return nullptr;
}

void DeviceMemory::give_back(std::byte* shown) {
  const auto block = taken_blocks_.find(static_cast<std::size_t>(shown - shown_));
  TORCH_INTERNAL_ASSERT(block != taken_blocks_.end(), "no such block of the emulated device");
  auto [offset, size] = *block;
  taken_blocks_.erase(block);
  taken_ -= size;
  auto after = gaps_.lower_bound(offset);
  if (after != gaps_.end() && after->first == offset + size) {
    size += after->second;
    after = gaps_.erase(after);
  }
  if (after != gaps_.begin()) {
    const auto before = std::prev(after);
    if (before->first + before->second == offset) {
      before->second += size;
      return;
    }
  }
  gaps_[offset] = size;
}

std::size_t DeviceMemory::largest_gap() const {
  std::size_t largest = 0;
  for (const auto& [offset, size] : gaps_) largest = std::max(largest, size);
  return largest;
}

}  // namespace trireme::inline v0::testing
