// DirectRun: all-reduce in memory that all ranks see. Rank r computes slice r of the result.
//
// In place: where every rank's buffers lie in arenas, rank r reads its slice of all terms and
// writes the sum into every rank's `out`. Two rounds of flags (header, done), 2nS bytes of memory
// traffic. Staged: otherwise, piece by piece through the ranks' staging areas, the copying of one
// piece in and of another out while peers still reduce. Progress context only; poll() never blocks.
#pragma once

#include <memory>
#include <vector>

#include "trireme/comm/engine.h"
#include "trireme/kernel/reduce.h"

namespace trireme {
inline namespace v0 {
namespace comm {

class DirectRun {
 public:
  DirectRun(Engine& engine, std::shared_ptr<Call> call);
  /// Before the header is posted: says where the buffers are, and stages the first pieces if some
  /// are in no arena.
  void announce(BoardMemory::Slot& slot);
  /// After all headers are there.
  void run();
  /// Goes on where flags of the peers allow it; true if anything moved. Ends in Engine::finish.
  bool poll();
  /// True if it is `peer` whose flags are waited for.
  bool owes(int peer) const;

 private:
  struct Piece {
    std::size_t begin = 0, count = 0;  // elements
  };
  Piece slice_of(Piece piece, int rank) const;
  Piece piece(std::size_t index) const;
  void reduce_in_place();
  bool reduce(Piece slice, const std::vector<std::byte*>& in, const std::vector<std::byte*>& out);
  std::byte* staged_term(int rank, std::size_t index, std::size_t term) const;
  std::byte* staged_result(int rank, std::size_t index) const;
  void stage(std::size_t index);
  bool reduce_staged(std::size_t index);
  void unstage(std::size_t index);
  std::uint64_t mark(std::size_t index) const;
  std::byte* address(int rank, const Location& location) const;

  Engine& engine_;
  const std::shared_ptr<Call> call_;
  const int rank_, size_;
  const std::size_t width_;
  const FoldPlan& plan_;
  bool in_place_ = false;
  // Staged only:
  std::size_t piece_count_ = 0, num_pieces_ = 0;
  std::size_t staged_ = 0, reduced_ = 0, unstaged_ = 0;  // pieces
};

}  // namespace comm
}  // namespace v0
}  // namespace trireme
