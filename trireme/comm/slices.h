// Cuts a buffer into one part per rank, and finds its elements. Pure functions.
#pragma once

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <span>

#include "trireme/base/buffer.h"

namespace trireme::inline v0::comm {

struct Slice {
  std::size_t begin = 0, count = 0;  // elements
};

inline std::byte* address_in(const Buffer& buffer, std::size_t element) {
  return static_cast<std::byte*>(buffer.data) + element * size_of(buffer.dtype);
}

/// Part `index` of `count` elements of `width` bytes, cut into `parts` parts that begin at cache
/// lines. The last parts may be shorter or empty.
inline Slice slice_of(std::size_t count, std::size_t width, std::size_t index, std::size_t parts) {
  const std::size_t line = 64 / width;
  const std::size_t part = ((count + parts - 1) / parts + line - 1) / line * line;
  const std::size_t begin = std::min(part * index, count);
  return {begin, std::min(part, count - begin)};
}

/// Piece `index` of `count` elements. `counts`: the pieces' lengths; empty: `parts` equal pieces.
inline Slice piece_of(std::size_t count, std::span<const std::size_t> counts, std::size_t index,
                      std::size_t parts) {
  if (counts.empty()) return {count / parts * index, count / parts};
  return {std::accumulate(counts.begin(), counts.begin() + index, std::size_t{0}), counts[index]};
}

}  // namespace trireme::inline v0::comm
