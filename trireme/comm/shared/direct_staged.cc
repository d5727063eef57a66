// DirectRun's staged all_reduce, used if a buffer does not lie in an arena.
#include <algorithm>
#include <cstring>

#include "trireme/comm/shared/direct_run.h"

namespace trireme::inline v0::comm {
namespace {

std::byte* bytes_at(const Buffer& buffer, std::size_t element) {
  return static_cast<std::byte*>(buffer.data) + element * size_of(buffer.dtype);
}

}  // namespace

Slice DirectRun::piece(std::size_t index) const {
  const std::size_t begin = index * piece_count_;
  return {begin, std::min(piece_count_, call_->operation.count - begin)};
}

// A staging area has two halves, used in turn; each holds plan_.most_terms operands and a result.
std::byte* DirectRun::staged_term(int rank, std::size_t index, std::size_t term) const {
  const std::size_t parts = (index % 2) * (plan_.most_terms + 1) + term;
  return engine_.arenas().staging_of(rank) + parts * piece_count_ * width_;
}

std::byte* DirectRun::staged_result(int rank, std::size_t index) const {
  return staged_term(rank, index, plan_.most_terms);
}

// All operations use the same counters, so a mark holds the number of the call and of the piece.
std::uint64_t DirectRun::mark(std::size_t index) const { return call_->number << 24 | (index + 1); }

// Copies in what the others fold: all slices but this rank's own.
void DirectRun::stage(std::size_t index) {
  const Slice part = piece(index);
  const auto& terms = call_->operation.terms;
  for (int rank = 0; rank < size_; ++rank) {
    const Slice slice = slice_of(part.count, rank);
    if (rank == rank_ || slice.count == 0) continue;
    for (std::size_t i = 0; i < terms.size(); ++i) {
      std::memcpy(staged_term(rank_, index, i) + slice.begin * width_,
                  bytes_at(terms[i].value, part.begin + slice.begin), slice.count * width_);
    }
  }
  staged_ = index + 1;
  engine_.board().own().staged.store(mark(index), std::memory_order_release);
}

bool DirectRun::reduce_staged(std::size_t index) {
  const Slice part = piece(index);
  const Slice slice = slice_of(part.count, rank_);
  const Operation& op = call_->operation;
  pointers_.in.clear();
  for (int rank = 0; rank < size_; ++rank) {
    for (std::size_t i = 0; i < terms_of(rank); ++i) {
      pointers_.in.push_back(rank == rank_ ? bytes_at(op.terms[i].value, part.begin + slice.begin)
                                           : staged_term(rank, index, i) + slice.begin * width_);
    }
  }
  pointers_.out = {bytes_at(op.out, part.begin + slice.begin),
                   staged_result(rank_, index) + slice.begin * width_};
  if (!fold_blocks(slice.count, pointers_.out.back())) return false;
  reduced_ = index + 1;
  engine_.board().own().reduced.store(mark(index), std::memory_order_release);
  return true;
}

void DirectRun::unstage(std::size_t index) {
  const Slice part = piece(index);
  for (int rank = 0; rank < size_; ++rank) {
    const Slice slice = slice_of(part.count, rank);
    if (rank == rank_ || slice.count == 0) continue;
    std::memcpy(bytes_at(call_->operation.out, part.begin + slice.begin),
                staged_result(rank, index) + slice.begin * width_, slice.count * width_);
  }
  unstaged_ = index + 1;
}

// Piece i + 2 is staged only after this rank has copied out piece i. When all have staged i + 2,
// all have copied out i, so the result of i may be overwritten.
bool DirectRun::poll_staged() {
  Board& board = engine_.board();
  bool moved = false;
  for (bool again = true; again;) {
    again = false;
    if (staged_ < num_pieces_ && staged_ < unstaged_ + 2) {
      stage(staged_);
      again = true;
    }
    if (reduced_ < staged_ && board.all_reached(&BoardMemory::staged, mark(reduced_))) {
      if (!reduce_staged(reduced_)) return true;
      again = true;
    }
    if (again) board.notify_peers();
    if (unstaged_ < reduced_ && board.all_reached(&BoardMemory::reduced, mark(unstaged_))) {
      unstage(unstaged_);
      again = true;
    }
    moved |= again;
  }
  if (unstaged_ < num_pieces_) return moved;
  if (watched()) tell_end();
  engine_.finish(call_);
  return moved;
}

}  // namespace trireme::inline v0::comm
