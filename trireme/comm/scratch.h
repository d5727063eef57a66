// Scratch: 64-byte aligned blocks that received terms rest in, kept for the next operation.
// Used in the progress context only.
#pragma once

#include <cstddef>
#include <memory>
#include <new>
#include <vector>

namespace trireme {
inline namespace v0 {
namespace comm {

class Scratch {
 public:
  std::byte* take(std::size_t bytes);
  void give_back(std::byte* block) noexcept;
  /// Frees what is not in use if all blocks together exceed `bytes`.
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

}  // namespace comm
}  // namespace v0
}  // namespace trireme
