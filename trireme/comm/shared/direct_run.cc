#include "trireme/comm/shared/direct_run.h"

#include <algorithm>
#include <utility>

#include "trireme/base/error.h"
#include "trireme/comm/calls/operation.h"
#include "trireme/kernel/prefetch.h"

namespace trireme::inline v0::comm {

// The block after which peers' `aborted` is checked again; its operands fit into the caches.
constexpr std::size_t kBlockBytes = 256u << 10;
constexpr std::size_t kSharedBytes = 8u << 10;  // the block if cache lines are prefetched
// The block read from a peer: fits into the L2 cache until it is folded, and is large enough to
// hide the microsecond of the system call.
constexpr std::size_t kPullBytes = 64u << 10;

DirectRun::DirectRun(Engine& engine, std::shared_ptr<Call> call, DirectPointers& pointers)
    : DirectBase(engine, std::move(call), pointers),
      width_(size_of(call_->operation.dtype)),
      plan_(engine.fold_plans.of(call_->operation.leaves())),
      sums_(engine, *call_, plan_, pointers, [this](std::size_t count, const std::byte* shared) {
        return fold_blocks(count, shared);
      }) {}

// Announces the terms (all_reduce) or the input, then the output if peers write to it.
void DirectRun::announce() {
  const Operation& op = call_->operation;
  if (watched()) tell_start();  // before peers may overwrite the buffers
  bool mapped = true;
  for (const Term& term : op.terms) mapped &= add(term.value);
  if (kind() != OpKind::AllReduce) mapped &= add(op.in);
  if (writes_to(rank_)) mapped &= add(op.out);
  put_locations();
  if (!mapped && kind() == OpKind::AllReduce) sums_.stage_early();
}

// True if every rank writes its slice to `rank`'s output.
bool DirectRun::writes_to(int rank) const noexcept {
  if (kind() == OpKind::Reduce) return rank == call_->operation.root;
  return kind() == OpKind::AllReduce;
}

DirectRun::Way DirectRun::choose_way() const {
  for (int rank = 0; rank < size_; ++rank) {
    if (!engine_.board().slot(rank, call_->number).all_mapped()) {
      return kind() == OpKind::AllReduce ? Way::Staged : Way::Pulled;
    }
  }
  return Way::InPlace;
}

void DirectRun::run() {
  way_ = choose_way();
  if (way_ == Way::InPlace) reduce_in_place();
  if (way_ == Way::Pulled) reduce_pulled();
  if (way_ == Way::Staged) {
    staging_ = &sums_;
    sums_.begin();
  }
  if (!engine_.failure.broken()) poll();
}

// The elements that `rank` computes.
Slice DirectRun::result_slice(int rank) const {
  const Operation& op = call_->operation;
  if (kind() == OpKind::Reduce && way_ == Way::Pulled) {
    return {0, rank == op.root ? op.count : 0};  // the others cannot write to the root's output
  }
  if (kind() != OpKind::ReduceScatter) return slice_of(op.count, rank);
  return piece_of(op.count, op.counts, static_cast<std::size_t>(rank), size_);
}

// Folds elements [begin, begin + count) of the buffers in pointers_.
void DirectRun::fold(std::size_t begin, std::size_t count) {
  const Operation& op = call_->operation;
  pointers_.from.clear();
  pointers_.to.clear();
  for (const std::byte* in : pointers_.in) pointers_.from.push_back(in + begin * width_);
  for (std::byte* out : pointers_.out) pointers_.to.push_back(out + begin * width_);
  kernel::fold(combine_of(op.op), op.dtype, plan_.steps, pointers_.from, pointers_.to, count,
               op.op == ReduceOp::Mean ? op.total : 0);
}

// False if a peer left meanwhile. `shared` (or null): an output whose cache lines the peers have
// read; the lines of the next block are prefetched while this one is computed.
bool DirectRun::fold_blocks(std::size_t count, const std::byte* shared) {
  const std::size_t block = (shared ? kSharedBytes : kBlockBytes) / width_;
  const CallTrace::Reducing traced(engine_.trace.get());
  if (shared) kernel::prefetch_for_writing(shared, std::min(block, count) * width_);
  return write_blocks(count, block, [&](std::size_t begin, std::size_t length) {
    const std::size_t next = begin + length;
    if (shared) {
      kernel::prefetch_for_writing(shared + next * width_, std::min(block, count - next) * width_);
    }
    fold(begin, length);
  });
}

void DirectRun::reduce_in_place() {
  const Slice slice = result_slice(rank_);
  const std::size_t skip = slice.begin * width_;
  kernel::prefetch_for_writing(&engine_.board().own().done, 64);  // for declare_done()
  pointers_.in.clear();
  pointers_.out.clear();
  for (int rank = 0; rank < size_; ++rank) {
    const auto terms = static_cast<std::uint32_t>(terms_of(rank));
    for (std::uint32_t i = 0; i < terms; ++i) {
      pointers_.in.push_back(at(rank, i) + skip);
    }
    if (writes_to(rank)) pointers_.out.push_back(at(rank, terms) + skip);
  }
  if (kind() == OpKind::ReduceScatter) {
    pointers_.out.push_back(static_cast<std::byte*>(call_->operation.out.data));
  }
  if (watched()) tell_reads();
  if (!fold_blocks(slice.count, nullptr)) return;
  if (watched()) tell_reduced();
  declare_done();
}

// Operands that are not mapped are read into `scratch`, one after another.
bool DirectRun::fold_block(Slice block, std::byte* scratch) {
  pointers_.in.clear();
  const std::size_t skip = block.begin * width_;
  for (int rank = 0; rank < size_; ++rank) {
    for (std::uint32_t i = 0; i < terms_of(rank); ++i) {
      std::byte* here = at(rank, i);
      if (here) {
        pointers_.in.push_back(here + skip);
        continue;
      }
      if (!read(rank, i, skip, {scratch, block.count * width_})) return false;
      pointers_.in.push_back(scratch);
      scratch += kPullBytes;
    }
  }
  fold(0, block.count);
  return look();
}

void DirectRun::reduce_pulled() {
  const CallTrace::Reducing traced(engine_.trace.get());
  const Slice slice = result_slice(rank_);
  auto* const out = static_cast<std::byte*>(call_->operation.out.data);
  const std::size_t block = kPullBytes / width_;
  std::byte* const scratch = engine_.scratch.take((plan_.steps.size() + 1) * kPullBytes);
  bool going = true;
  for (std::size_t begin = 0; begin < slice.count && going; begin += block) {
    pointers_.out.assign(1, out + begin * width_);
    going = fold_block({slice.begin + begin, std::min(block, slice.count - begin)}, scratch);
  }
  engine_.scratch.give_back(scratch);
  if (going) declare_done();
}

}  // namespace trireme::inline v0::comm
