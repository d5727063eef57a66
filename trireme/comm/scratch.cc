#include "trireme/comm/scratch.h"

#include <algorithm>

namespace trireme::inline v0::comm {

std::byte* Scratch::take(std::size_t bytes) {
  Block* best = nullptr;  // the smallest free block that fits
  for (Block& block : blocks_) {
    if (block.in_use || block.bytes < bytes) continue;
    if (!best || block.bytes < best->bytes) best = &block;
  }
  if (!best) {
    const std::size_t rounded = std::max<std::size_t>((bytes + 63) / 64 * 64, 64);
    blocks_.push_back({aligned_bytes(rounded), rounded, false});
    best = &blocks_.back();
  }
  best->in_use = true;
  return best->data.get();
}

void Scratch::give_back(std::byte* data) noexcept {
  for (Block& block : blocks_) {
    if (block.data.get() == data) block.in_use = false;
  }
}

void Scratch::trim(std::size_t bytes) noexcept {
  std::size_t all = 0;
  for (const Block& block : blocks_) all += block.bytes;
  if (all > bytes) std::erase_if(blocks_, [](const Block& block) { return !block.in_use; });
}

}  // namespace trireme::inline v0::comm
