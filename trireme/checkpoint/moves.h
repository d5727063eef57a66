// plan_moves(): which rank sends which elements to which rank (KeptState).
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace trireme::inline v0::checkpoint {

// Elements [begin, end) of a tensor, and where they are: on `rank`, in its shard number `index`.
struct Interval {
  std::int64_t begin = 0, end = 0;
  int rank = 0;
  std::size_t index = 0;
  friend bool operator==(const Interval&, const Interval&) = default;
};

using Tensors = std::map<std::string, std::vector<Interval>>;  // by key

// Elements [begin, end) go from a shard of one rank to one of another.
struct Move {
  std::int64_t begin = 0, end = 0;
  Interval from;
  Interval to;
  friend bool operator==(const Move&, const Move&) = default;
};

/// How every need is met from `have`, in the order of the needs; nullopt if no rank has some tensor or
/// element. The source of an element is the rank's own shard, otherwise the shard that reaches
/// furthest; among equals that of the next rank, so that ranks do not all ask the same one. Fast if
/// each rank's needs ascend: a tensor that is cut by columns has an interval per row and rank.
std::optional<std::vector<Move>> plan_moves(const Tensors& need, const Tensors& have, int ranks);

}  // namespace trireme::inline v0::checkpoint
