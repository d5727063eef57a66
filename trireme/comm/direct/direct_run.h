// DirectRun: sums in memory that all ranks of a host reach (all_reduce, reduce,
// reduce_scatter). Rank r computes slice r of the result.
//
// In place: where every rank's buffers lie in arenas, rank r reads its slice of all terms and
// writes the sum into every `out` that wants it. Two rounds of flags (header, done), 2nS bytes of
// memory traffic in all_reduce.
// Pulled (reduce, reduce_scatter): where some do not, but peers' memory can be read
// (Transport::read), a rank reads the others' terms block by block and folds them into its own
// `out`; of reduce the root does all. Same flags.
// Staged (all_reduce): otherwise, piece by piece through the ranks' staging areas: every rank puts
// there what the others fold, folds its own slice of each piece, and takes theirs. The copying of
// one piece in and of another out goes on while peers still reduce. 2S(n-1)/n bytes copied a rank.
#pragma once

#include <span>
#include <vector>

#include "trireme/comm/direct/direct_base.h"
#include "trireme/kernel/reduce.h"

namespace trireme {
inline namespace v0 {
namespace comm {

class DirectRun final : public DirectBase {
 public:
  DirectRun(Engine& engine, std::shared_ptr<Call> call);
  void announce(BoardMemory::Slot& slot) override;
  void run() override;
  bool waits() const override;
  bool poll() override;
  bool owes(int peer) const override;

 private:
  enum class Way { InPlace, Pulled, Staged };
  struct Slice {
    std::size_t begin = 0, count = 0;  // elements
  };
  Way choose_way() const;
  Slice slice_of(Slice whole, int rank) const;
  Slice result_slice(int rank) const;
  std::size_t terms_of(int rank) const { return plan_.nodes_of[rank].size(); }
  OpKind kind() const noexcept { return operation().kind; }
  bool writes_to(int rank) const noexcept;
  void fold(std::size_t begin, std::size_t count);
  // In place:
  void reduce_in_place();
  bool fold_blocks(std::size_t count, const std::byte* shared);
  // Pulled:
  void reduce_pulled();
  bool fold_block(Slice block, std::byte* scratch);
  // Staged:
  Slice piece(std::size_t index) const;
  std::byte* staged_term(int rank, std::size_t index, std::size_t term) const;
  std::byte* staged_result(int rank, std::size_t index) const;
  void stage(std::size_t index);
  bool reduce_staged(std::size_t index);
  void unstage(std::size_t index);
  bool poll_staged();
  std::uint64_t mark(std::size_t index) const;

  // For CommunicatorOptions::on_run; all_reduce only:
  bool watched() const noexcept {
    return kind() == OpKind::AllReduce && engine_.options().on_run != nullptr;
  }
  void tell_start() const;
  void tell_reads() const;
  void tell_reduced() const;
  void tell_end() const;
  void ended() override {
    if (watched()) tell_end();
  }

  const std::size_t width_;
  const FoldPlan& plan_;
  DirectPointers& pointers_;  // of the slice that is being computed
  Way way_ = Way::Staged;
  // Staged only:
  std::size_t piece_count_ = 0, num_pieces_ = 0;
  std::size_t staged_ = 0, reduced_ = 0, unstaged_ = 0;  // pieces
};

}  // namespace comm
}  // namespace v0
}  // namespace trireme
