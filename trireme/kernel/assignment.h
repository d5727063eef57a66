// Assignment: which micro-batches of a global batch a rank computes (docs/numerics.md).
//
// Ranks form `groups` of `members` consecutive ranks. Each group takes a contiguous share; within
// it, member s takes the leaves s, s + members, ... Plain data parallel and ZeRO-1 are N groups of
// one, ZeRO-2 and ZeRO-3 one group of N, hybrid has one group per replica. For 10 micro-batches:
//
//     4 x 1   0 1 | 2 3 4 | 5 6 | 7 8 9          1 x 4   0 4 8 | 1 5 9 | 2 6 | 3 7
//     2 x 2   0 2 4 | 1 3 || 5 7 9 | 6 8         weights 5 3 2: 0 1 2 3 4 | 5 6 7 | 8 9
//
// If several ranks compute a micro-batch together (tensor parallel), `together` consecutive ranks
// count as one place and have the same leaves. Pure functions, thread safe.
#pragma once

#include <cstdint>
#include <vector>

#include "trireme/kernel/tree_sum.h"

namespace trireme::inline v0::kernel {

struct Assignment {
  int groups = 1, members = 1, together = 1;
  /// The weight of each group's share (LeafShares); empty: equal. Changes no sum.
  std::vector<std::uint32_t> weights = {};
  /// The number of places.
  int size() const noexcept { return groups * members; }
  /// Ranks from size() x together on start again at place 0: pipeline ranks with the same data
  /// coordinate compute the same micro-batches.
  int place_of(int rank) const noexcept { return rank / together % size(); }
  int group_of(int rank) const noexcept { return place_of(rank) / members; }
  int member_of(int rank) const noexcept { return place_of(rank) % members; }
  friend bool operator==(const Assignment&, const Assignment&) = default;
};

/// Every rank takes a contiguous share.
inline Assignment contiguous(int size) noexcept { return {size, 1}; }

/// `total` leaves, in the shares of the groups.
inline LeafShares shares_of(const Assignment& assignment, std::uint32_t total) {
  return {total, assignment.weights};
}
/// The leaves of all members of a group.
LeafRange group_share(const Assignment& assignment, std::uint32_t total, int group);
/// The leaves of one rank, ascending; empty if it has none.
std::vector<std::uint32_t> leaves_of(const Assignment& assignment, std::uint32_t total, int rank);

}  // namespace trireme::inline v0::kernel
