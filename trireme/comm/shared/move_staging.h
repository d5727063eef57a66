// MoveStaging: DirectMove through the ranks' staging areas, used if peers' inputs are not mapped. A
// rank that has data copies it into its own area, piece by piece; a rank that needs it copies it
// out ("takes" it). Both go on at the same time, a few pieces apart, so that a piece is still in
// the caches when it is taken. These two overlapping copies take less time than one copy by the
// system out of a peer's address space (docs/design/009-direct-moves.md).
//
//     broadcast            the root stages its input, the others take it
//     gather               all ranks but the root stage their inputs, the root takes them
//     all_gather           every rank stages its input once and takes all others
//     scatter, all_to_all  a piece has n parts, one for each rank
//
// A rank writes only to its own area. It ends when all ranks have taken everything, since the next
// call may overwrite the areas. Progress context only.
#pragma once

#include <cstddef>
#include <vector>

#include "trireme/comm/shared/direct_base.h"

namespace trireme::inline v0::comm {

/// A part of the data that a rank needs: bytes [source, source + bytes) of rank `from`'s input. It
/// goes to byte `target` of the needing rank's output.
struct MovedRange {
  int from = 0;
  std::size_t source = 0, target = 0, bytes = 0;
};
/// All parts that `rank` of `size` needs in `operation`, including those from its own input.
std::vector<MovedRange> parts_of(const Operation& operation, int rank, int size);

class MoveStaging final : public Staging {
 public:
  /// Call it after all headers have arrived; `call` must outlive this. Not for all_to_all with
  /// unequal pieces, since only the sender knows where those begin.
  MoveStaging(Engine& engine, const Call& call);
  bool waits() const override;
  bool poll() override;
  bool finished() const override;
  bool owes(int peer) const override;

 private:
  struct Outgoing {
    std::size_t lane = 0, source = 0, bytes = 0;
  };
  void plan_parts();
  void copy_own() const;
  void stage();
  void take();
  bool may_stage() const;
  bool may_take() const;
  std::byte* slot(int rank, std::size_t index, std::size_t lane) const;

  const bool alike_;           // all ranks take the same data from a source
  const std::size_t quantum_;  // bytes of each part in one piece
  std::vector<Outgoing> outgoing_;
  std::vector<MovedRange> incoming_;
  MovedRange own_;
  std::size_t num_pieces_ = 0, staged_ = 0, taken_ = 0;
};

}  // namespace trireme::inline v0::comm
