// MoveStaging: DirectMove's third way, through the ranks' staging areas: where peers' inputs are
// not mapped. Whoever has data copies it into its own area, piece by piece; whoever shall have it
// copies it out of there; both at the same time, a few pieces apart, so that a piece is still in
// the caches when it is taken. Two copies of the program's own, of which one is hidden behind the
// other, take less time than the system's one copy out of a peer's address space (docs/design/009).
//
//     broadcast, gather    the root, or everyone else, stages; the others take
//     all_gather           everyone stages its input once, and takes everyone's
//     scatter, all_to_all  a piece is n parts, one for each rank
//
// A rank writes into its own area only, and ends when all have taken everything: the next call may
// use the areas. Progress context only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "trireme/comm/direct/direct_call.h"
#include "trireme/comm/direct/moved_part.h"

namespace trireme {
inline namespace v0 {
namespace comm {

class MoveStaging {
 public:
  /// After all headers are there; `call` outlives this. Not for all_to_all of unequal pieces: only
  /// the sender knows where those begin.
  MoveStaging(Engine& engine, const Call& call);
  /// Stages and takes what can be; true if anything moved.
  bool poll();
  bool finished() const;
  /// True if poll() would move nothing.
  bool waits() const;
  bool owes(int peer) const;

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
  std::uint64_t mark(std::size_t index) const;

  Engine& engine_;
  const Call& call_;
  const int rank_, size_;
  const bool alike_;           // all takers take the same
  const std::size_t quantum_;  // bytes of a part that one piece holds
  std::vector<Outgoing> outgoing_;
  std::vector<Part> incoming_;
  Part own_;
  std::size_t num_pieces_ = 0, staged_ = 0, taken_ = 0;
};

}  // namespace comm
}  // namespace v0
}  // namespace trireme
