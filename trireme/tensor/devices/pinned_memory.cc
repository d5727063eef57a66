#include "trireme/tensor/devices/pinned_memory.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <bit>

#include "trireme/base/pinned_blocks.h"

namespace trireme::inline v0::tensor {
namespace {

at::Tensor pinned_bytes(std::size_t bytes) {
  return at::empty({static_cast<std::int64_t>(bytes)},
                   at::TensorOptions(at::kByte).pinned_memory(true));
}

}  // namespace

at::Tensor PinnedMemory::take(std::int64_t count, at::ScalarType type) {
  constexpr std::size_t kAlignment = 64;
  const std::size_t width = c10::elementSize(type);
  const std::size_t bytes =
      (static_cast<std::size_t>(count) * width + kAlignment - 1) & -kAlignment;
  Block& block = with_room(std::max(bytes, kAlignment));
  const auto begin = static_cast<std::int64_t>(block.used / width);
  block.used += bytes;
  // Not a view: autograd would count its changes as changes of the block.
  return at::empty({0}, at::TensorOptions(type)).set_(block.memory.storage(), begin, {count}, {1});
}

PinnedMemory::Block& PinnedMemory::with_room(std::size_t bytes) {
  for (Block& block : blocks_)
    if (block.memory.nbytes() - block.used >= bytes) return block;
  const std::size_t size = next_pinned_block(bytes, bytes_);
  bytes_ += size;
  return blocks_.emplace_back(Block{pinned_bytes(size)});
}

std::vector<at::Tensor> pinned_pieces(std::size_t bytes) {
  std::vector<at::Tensor> pieces;
  for (std::size_t rest = bytes; rest > 0;) {
    const bool fits = std::bit_ceil(rest) - rest <= bytes / 8;
    const std::size_t piece = fits ? rest : std::bit_floor(rest);
    pieces.push_back(pinned_bytes(piece));
    rest -= piece;
  }
  return pieces;
}

}  // namespace trireme::inline v0::tensor
