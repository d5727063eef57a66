// The host's pinned memory, from which devices copy by themselves. LibTorch rounds the bytes of each
// pinned tensor up to a power of two, which may be twice what it holds; here less is lost.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace trireme::inline v0::tensor {

/// Pinned tensors that live long, cut from blocks (base/pinned_blocks.h). A block is freed after this and
/// all of its tensors. Not thread safe.
class PinnedMemory {
 public:
  /// `count` elements, aligned to 64 bytes and not initialised.
  at::Tensor take(std::int64_t count, at::ScalarType type);
  /// Bytes of all blocks.
  std::size_t bytes() const noexcept { return bytes_; }

 private:
  struct Block {
    at::Tensor memory;
    std::size_t used = 0;
  };
  Block& with_room(std::size_t bytes);

  std::vector<Block> blocks_;
  std::size_t bytes_ = 0;
};

/// Pinned tensors of bytes, at most four, that hold `bytes` together, for memory that comes and goes. They
/// take at most an eighth more.
std::vector<at::Tensor> pinned_pieces(std::size_t bytes);

}  // namespace trireme::inline v0::tensor
