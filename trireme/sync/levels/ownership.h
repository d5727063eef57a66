// Ownership: which rank owns which interval of which parameter (ZeRO; Rajbhandari et al. 2020,
// arXiv:1910.02054).
//
// Parameters lie in *units*, one per block. A unit's whole values are gathered and freed together,
// as one piece of memory in which every parameter starts at a multiple of 64 bytes. A unit is cut
// into one interval per owner, so that one all_gather_v gathers it. Cuts are at chunk ends only
// (4,096 elements of a parameter, counted from its start; docs/numerics.md). An owner that gets too
// much of one unit gets less of the next:
//
//     unit 0   | w0 . . . . . | w1 . |      owner 0: w0[0, 4 chunks)   owner 1: w0[4 ...), w1
//              |   owner 0   |owner 1|
//
// So an owner has at most one interval of a parameter. A pure function of the order of add().
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace trireme::inline v0::parallel {

/// Elements [begin, end) of a parameter.
struct Piece {
  std::uint32_t parameter = 0;
  std::int64_t begin = 0, end = 0;
  std::int64_t size() const noexcept { return end - begin; }
  friend bool operator==(const Piece&, const Piece&) = default;
};

struct Unit {
  struct Member {
    std::uint32_t parameter = 0;
    std::int64_t count = 0;  // elements
    std::size_t width = 4;   // bytes of one
    std::size_t offset = 0;  // bytes, within the unit
  };
  std::vector<Member> members;
  std::size_t bytes = 0;
  std::vector<std::size_t> cuts;  // bytes; owner r has [cuts[r], cuts[r + 1])

  /// Bytes of every owner's interval.
  std::vector<std::size_t> counts() const;
};

class Ownership {
 public:
  explicit Ownership(int owners);
  /// Lays out and cuts the next unit; `offset`s are filled in. Returns its number.
  std::uint32_t add(std::vector<Unit::Member> members);

  int owners() const noexcept { return owners_; }
  const std::vector<Unit>& units() const noexcept { return units_; }
  /// Per owner, ascending in the order of add(); a parameter of no elements is owner 0's.
  const std::vector<std::vector<Piece>>& pieces() const noexcept { return pieces_; }

 private:
  int owners_;
  std::vector<Unit> units_;
  std::vector<std::vector<Piece>> pieces_;
  std::int64_t total_ = 0;                // elements of all units
  std::vector<std::int64_t> owned_upto_;  // [r]: elements of owners before r
};

}  // namespace trireme::inline v0::parallel
