// The memory of one emulated device. The same pages are mapped twice:
//
//   shown     the addresses that tensors carry; no access, so a host that reads or writes them dies
//   hidden    readable and writable; only operations on streams and copies use it
//
// Memory that is not in use holds 0xff bytes: NaN in every floating-point type, -1 in integers. Not
// thread-safe: the caller holds the runtime's lock. The constructor throws c10::Error if the system
// refuses.
#pragma once

#include <cstddef>
#include <map>
#include <optional>

namespace trireme::inline v0::testing {

constexpr int kPoisonByte = 0xff;

class DeviceMemory {
 public:
  explicit DeviceMemory(std::size_t bytes);
  ~DeviceMemory();
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;

  /// The shown address of the first gap that is large enough; null if there is none.
  std::byte* take(std::size_t bytes);
  /// Makes a block of take() free. The caller has poisoned it.
  void give_back(std::byte* shown);

  bool owns(const void* shown) const {
    return shown >= shown_ && shown < static_cast<const void*>(shown_ + capacity_);
  }
  std::byte* hidden(const void* shown) const {
    return hidden_ + (static_cast<const std::byte*>(shown) - shown_);
  }
  std::size_t capacity() const { return capacity_; }
  /// Bytes of blocks that were taken and not given back.
  std::size_t taken() const { return taken_; }
  std::size_t largest_gap() const;

 private:
  std::byte* shown_ = nullptr;
  std::byte* hidden_ = nullptr;
  std::size_t capacity_ = 0;
  std::size_t taken_ = 0;
  std::size_t poisoned_ = 0;                 // bytes from the start that were poisoned once
  std::map<std::size_t, std::size_t> gaps_;  // offset, bytes
  std::map<std::size_t, std::size_t> taken_blocks_;
};

}  // namespace trireme::inline v0::testing
