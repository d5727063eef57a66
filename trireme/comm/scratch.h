// 64-byte aligned memory. Scratch: blocks of such memory for terms, which later operations reuse.
// Progress context only.
#pragma once

#include <cstddef>
#include <memory>
#include <new>
#include <vector>

namespace trireme::inline v0::comm {

struct FreeAligned {
  void operator()(std::byte* memory) const noexcept {
    ::operator delete[](memory, std::align_val_t(64));
  }
};
using AlignedBytes = std::unique_ptr<std::byte[], FreeAligned>;
inline AlignedBytes aligned_bytes(std::size_t count) {
  return AlignedBytes(static_cast<std::byte*>(::operator new[](count, std::align_val_t(64))));
}

class Scratch {
 public:
  std::byte* take(std::size_t bytes);
  void give_back(std::byte* block) noexcept;
  /// If the blocks together exceed `bytes`, frees all that are unused.
  void trim(std::size_t bytes) noexcept;

 private:
  struct Block {
    AlignedBytes data;
    std::size_t bytes;
    bool in_use;
  };
  std::vector<Block> blocks_;
};

}  // namespace trireme::inline v0::comm
