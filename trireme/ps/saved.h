// A shard's weights and optimizer state as one text and one piece of memory, for checkpoints.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/base/dtype.h"
#include "trireme/ps/shard.h"

namespace trireme::inline v0::ps {

struct Saved {
  std::string text;               // SavedText
  std::vector<std::byte> memory;  // weights, then the arrays one after the other
};

/// What the text says.
struct SavedText {
  struct Array {
    std::string name;  // "layer.0.weight.exp_avg"
    DType dtype = DType::F32;
    std::vector<std::int64_t> shape;  // of the whole
    std::int64_t begin = 0, end = 0;  // the elements that are here
    std::size_t bytes() const noexcept {
      return static_cast<std::size_t>(end - begin) * size_of(dtype);
    }
    friend bool operator==(const Array&, const Array&) = default;
  };
  std::int64_t version = -1;  // -1: leave it
  std::int64_t step_count = 0;
  std::vector<Array> arrays;  // empty: weights only

  std::string to_text() const;
  /// MismatchError if it is none.
  static SavedText from_text(std::string_view text);
};

Saved save(Shard& shard, std::int64_t version);
/// The reverse; returns the version, `own` if the text leaves it. MismatchError, with nothing
/// changed, unless the text fits this shard.
std::int64_t fill(Shard& shard, std::string_view text, std::span<const std::byte> memory,
                  std::int64_t own);

}  // namespace trireme::inline v0::ps
