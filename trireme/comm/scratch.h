// Scratch: 64-byte aligned blocks for terms, reused by later operations. Progress context only.
#pragma once

#include <cstddef>
#include <memory>
#include <new>
#include <vector>

namespace trireme::inline v0::comm {

class Scratch {
 public:
  std::byte* take(std::size_t bytes);
  void give_back(std::byte* block) noexcept;
  /// Frees all unused blocks if the blocks together exceed `bytes`.
  void trim(std::size_t bytes) noexcept;

 private:
  struct Free {
    void operator()(std::byte* block) const noexcept {
      ::operator delete[](block, std::align_val_t(64));
    }
  };
  struct Block {
    std::unique_ptr<std::byte[], Free> data;
    std::size_t bytes;
    bool in_use;
  };
  std::vector<Block> blocks_;
};

}  // namespace trireme::inline v0::comm
