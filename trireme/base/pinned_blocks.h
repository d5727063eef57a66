// The blocks from which pinned tensors are cut (tensor/devices/pinned_memory.h): LibTorch rounds the
// bytes of pinned memory up to a power of two, so each block is one.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>

namespace trireme::inline v0 {

/// The bytes of the next block, for a tensor of `bytes` > 0 bytes, after blocks of `so_far` bytes:
/// large enough that tensors of this size fill seven eighths of it, but no more than half of
/// `so_far` for that, since nobody knows how many more there will be.
constexpr std::size_t next_pinned_block(std::size_t bytes, std::size_t so_far) noexcept {
  std::size_t block = std::max(std::bit_ceil(bytes), std::bit_floor(so_far / 8));
  while (block <= so_far / 4 && block % bytes > block / 8) block *= 2;
  return block;
}

/// The bytes of all blocks for `count` tensors of `bytes` > 0 bytes. 24 tensors that are a little more
/// than a power of two lose 31 % of their bytes, and 4 of them 97 %.
constexpr std::size_t pinned_blocks(std::size_t count, std::size_t bytes) noexcept {
  std::size_t total = 0;
  while (count > 0) {
    const std::size_t block = next_pinned_block(bytes, total);
    total += block;
    count -= std::min(count, block / bytes);
  }
  return total;
}

}  // namespace trireme::inline v0
