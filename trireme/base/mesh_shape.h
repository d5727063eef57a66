// The number of ranks per kind of parallelism, in order from outermost to innermost (tensor).
// `expert` is no factor of size(): it divides data x shard, whose consecutive ranks share experts.
#pragma once

#include <cstdint>

namespace trireme::inline v0 {

enum class Axis : std::uint8_t { Pipeline, Data, Shard, Expert, Context, Tensor };
inline constexpr int kNumAxes = 6;

struct MeshShape {
  int pipeline = 1, data = 1, shard = 1, context = 1, tensor = 1, expert = 1;
  int size() const noexcept { return pipeline * data * shard * context * tensor; }
  int along(Axis axis) const noexcept {
    const int sizes[kNumAxes] = {pipeline, data, shard, expert, context, tensor};
    return sizes[static_cast<int>(axis)];
  }
  friend bool operator==(const MeshShape&, const MeshShape&) = default;
};

}  // namespace trireme::inline v0
