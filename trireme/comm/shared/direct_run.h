// DirectRun: all_reduce, reduce and reduce_scatter between ranks of a host that can access one
// another's memory. Rank r computes slice r of the result.
//
// In place: if all buffers lie in arenas. Rank r reads its slice of all terms and writes the sum to
// the `out` of every rank that needs it. Two rounds of flags (header, done); 2nS bytes of memory
// traffic for an all_reduce of S bytes.
// Pulled: otherwise, for reduce and reduce_scatter. A rank reads the peers' terms block by block
// (HostMemory::read) and folds them into its own `out`; in a reduce, the root folds everything.
// Staged: otherwise, for all_reduce, through the ranks' staging areas (sum_staging.h). Each rank
// copies 2S(n-1)/n bytes.
#pragma once

#include "trireme/comm/shared/direct_base.h"
#include "trireme/comm/shared/sum_staging.h"
#include "trireme/comm/slices.h"
#include "trireme/kernel/reduce.h"

namespace trireme::inline v0::comm {

class DirectRun final : public DirectBase {
 public:
  DirectRun(Engine& engine, std::shared_ptr<Call> call, DirectPointers& pointers);
  void announce() override;
  void run() override;

 private:
  enum class Way { InPlace, Pulled, Staged };
  Way choose_way() const;
  /// Slice `rank` of `count` elements.
  Slice slice_of(std::size_t count, int rank) const {
    return comm::slice_of(count, width_, static_cast<std::size_t>(rank), size_);
  }
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
  // For CommunicatorOptions::on_run; all_reduce only:
  bool watched() const noexcept {
    return kind() == OpKind::AllReduce && engine_.facts.options.on_run != nullptr;
  }
  void tell_start() const;
  void tell_terms(int chunk) const;
  void tell_reads() const;
  void tell_reduced() const;
  void tell_end() const;
  void ended() override {
    if (watched()) tell_end();
  }

  const std::size_t width_;
  const FoldPlan& plan_;
  Way way_ = Way::Staged;
  SumStaging sums_;
};

}  // namespace trireme::inline v0::comm
