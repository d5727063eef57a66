#include "trireme/comm/shared/sum_staging.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace trireme::inline v0::comm {
namespace {

// A staging area has two halves, used in turn; each holds plan.most_terms operands and a result.
std::size_t elements_of_piece(const FoldPlan& plan, std::size_t width) {
  const std::size_t parts = plan.most_terms + 1;
  return std::max<std::size_t>(kStagingBytes / 2 / parts / 4096 * 4096 / width, 1);
}

}  // namespace

SumStaging::SumStaging(Engine& engine, const Call& call, const FoldPlan& plan,
                       DirectPointers& pointers, Fold fold)
    : Staging(engine, call),
      plan_(plan),
      pointers_(pointers),
      fold_(std::move(fold)),
      width_(size_of(call.operation.dtype)),
      piece_count_(elements_of_piece(plan, width_)),
      num_pieces_((call.operation.count + piece_count_ - 1) / piece_count_) {}

// A peer may still copy the last sum's result out of this rank's area. No term of this sum lies
// there if both sums have the same most_terms. Otherwise poll() stages the first terms after all
// headers have arrived, when every rank has ended all earlier calls.
void SumStaging::stage_early() {
  if (pointers_.staged_terms != 0 && pointers_.staged_terms != plan_.most_terms) return;
  for (std::size_t i = 0; i < std::min<std::size_t>(2, num_pieces_); ++i) stage(i);
}

void SumStaging::begin() { pointers_.staged_terms = plan_.most_terms; }

Slice SumStaging::slice_of(std::size_t count, int rank) const {
  return comm::slice_of(count, width_, static_cast<std::size_t>(rank), size_);
}

Slice SumStaging::piece(std::size_t index) const {
  const std::size_t begin = index * piece_count_;
  return {begin, std::min(piece_count_, call_.operation.count - begin)};
}

std::byte* SumStaging::staged_term(int rank, std::size_t index, std::size_t term) const {
  const std::size_t parts = (index % 2) * (plan_.most_terms + 1) + term;
  return engine_.arenas->staging_of(rank) + parts * piece_count_ * width_;
}

std::byte* SumStaging::staged_result(int rank, std::size_t index) const {
  return staged_term(rank, index, plan_.most_terms);
}

// Copies in what the others fold: all slices but this rank's own.
void SumStaging::stage(std::size_t index) {
  const Slice part = piece(index);
  const auto& terms = call_.operation.terms;
  for (int rank = 0; rank < size_; ++rank) {
    const Slice slice = slice_of(part.count, rank);
    if (rank == rank_ || slice.count == 0) continue;
    for (std::size_t i = 0; i < terms.size(); ++i) {
      std::memcpy(staged_term(rank_, index, i) + slice.begin * width_,
                  address_in(terms[i].value, part.begin + slice.begin), slice.count * width_);
    }
  }
  staged_ = index + 1;
  engine_.board().own().staged.store(mark(index), std::memory_order_release);
}

bool SumStaging::reduce(std::size_t index) {
  const Slice part = piece(index);
  const Slice slice = slice_of(part.count, rank_);
  const Operation& op = call_.operation;
  pointers_.in.clear();
  for (int rank = 0; rank < size_; ++rank) {
    for (std::size_t i = 0; i < plan_.nodes_of[rank].size(); ++i) {
      pointers_.in.push_back(rank == rank_ ? address_in(op.terms[i].value, part.begin + slice.begin)
                                           : staged_term(rank, index, i) + slice.begin * width_);
    }
  }
  pointers_.out = {address_in(op.out, part.begin + slice.begin),
                   staged_result(rank_, index) + slice.begin * width_};
  if (!fold_(slice.count, pointers_.out.back())) return false;
  reduced_ = index + 1;
  engine_.board().own().reduced.store(mark(index), std::memory_order_release);
  return true;
}

void SumStaging::unstage(std::size_t index) {
  const Slice part = piece(index);
  for (int rank = 0; rank < size_; ++rank) {
    const Slice slice = slice_of(part.count, rank);
    if (rank == rank_ || slice.count == 0) continue;
    std::memcpy(address_in(call_.operation.out, part.begin + slice.begin),
                staged_result(rank, index) + slice.begin * width_, slice.count * width_);
  }
  unstaged_ = index + 1;
}

// Piece i + 2 is staged only after this rank has copied out piece i. When all have staged i + 2,
// all have copied out i, so the result of i may be overwritten.
bool SumStaging::poll() {
  Board& board = engine_.board();
  bool moved = false;
  for (bool again = true; again;) {
    again = false;
    if (staged_ < num_pieces_ && staged_ < unstaged_ + 2) {
      stage(staged_);
      again = true;
    }
    if (reduced_ < staged_ && board.all_reached(&BoardMemory::staged, mark(reduced_))) {
      if (!reduce(reduced_)) return true;
      again = true;
    }
    if (again) board.notify_peers();
    if (unstaged_ < reduced_ && board.all_reached(&BoardMemory::reduced, mark(unstaged_))) {
      unstage(unstaged_);
      again = true;
    }
    moved |= again;
  }
  return moved;
}

bool SumStaging::owes(int peer) const {
  const BoardMemory& board = engine_.board().of(peer);
  if (reduced_ < staged_ && board.staged.load() < mark(reduced_)) return true;
  return unstaged_ < reduced_ && board.reduced.load() < mark(unstaged_);
}

}  // namespace trireme::inline v0::comm
