// The host's pinned memory, from which devices copy by themselves. LibTorch rounds the bytes of
// each pinned tensor up to a power of two, up to twice the tensor's size; these pieces waste less.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace trireme::inline v0::tensor {

/// Pinned tensors that live long, cut from blocks (base/pinned_blocks.h). A block is freed when this
/// object and all tensors of the block are gone. Not thread safe.
class PinnedMemory {
 public:
  /// [count], aligned to 64 bytes and not initialised.
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

/// At most four pinned tensors of bytes that hold `bytes` together, for memory that is freed often.
/// At most an eighth more is allocated.
std::vector<at::Tensor> pinned_pieces(std::size_t bytes);

}  // namespace trireme::inline v0::tensor
