// SumStaging: an all_reduce through the ranks' staging areas, piece by piece, for DirectRun if a
// buffer does not lie in an arena. A rank copies in the slices that the others fold, folds its own
// slice, and copies the others' sums out, while peers still reduce. Progress context only.
#pragma once

#include <cstddef>
#include <functional>

#include "trireme/comm/shared/direct_base.h"
#include "trireme/comm/slices.h"

namespace trireme::inline v0::comm {

class SumStaging final : public Staging {
 public:
  /// Folds `count` elements of the buffers in `pointers`; false if the engine has failed. `shared`:
  /// the output that peers have read.
  using Fold = std::function<bool(std::size_t count, const std::byte* shared)>;
  SumStaging(Engine& engine, const Call& call, const FoldPlan& plan, DirectPointers& pointers,
             Fold fold);
  /// Copies in what fits before the peers have called, unless a peer may still read there.
  void stage_early();
  /// Call it when all headers have arrived, before poll().
  void begin();
  bool waits() const override { return false; }
  bool poll() override;
  bool finished() const override { return unstaged_ == num_pieces_; }
  bool owes(int peer) const override;

 private:
  Slice piece(std::size_t index) const;
  Slice slice_of(std::size_t count, int rank) const;
  std::byte* staged_term(int rank, std::size_t index, std::size_t term) const;
  std::byte* staged_result(int rank, std::size_t index) const;
  void stage(std::size_t index);
  bool reduce(std::size_t index);
  void unstage(std::size_t index);

  const FoldPlan& plan_;
  DirectPointers& pointers_;
  const Fold fold_;
  const std::size_t width_;
  const std::size_t piece_count_, num_pieces_;           // elements of a piece; pieces
  std::size_t staged_ = 0, reduced_ = 0, unstaged_ = 0;  // pieces
};

}  // namespace trireme::inline v0::comm
