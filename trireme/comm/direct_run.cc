#include "trireme/comm/direct_run.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "trireme/base/error.h"
#include "trireme/comm/combine.h"

namespace trireme {
inline namespace v0 {
namespace comm {
namespace {

// Between two looks at the peers' `aborted`; also keeps all operands of a block in the caches.
constexpr std::size_t kBlockBytes = 256u << 10;

std::byte* bytes_at(const Buffer& buffer, std::size_t element) {
  return static_cast<std::byte*>(buffer.data) + element * size_of(buffer.dtype);
}

}  // namespace

DirectRun::DirectRun(Engine& engine, std::shared_ptr<Call> call)
    : engine_(engine),
      call_(std::move(call)),
      rank_(engine.rank()),
      size_(engine.size()),
      width_(size_of(call_->operation.dtype)),
      plan_(engine.fold_plan(call_->operation.total)) {
  const std::size_t per_piece = kStagingBytes / 2 / (plan_.most_terms + 1) / 4096 * 4096 / width_;
  piece_count_ = std::max<std::size_t>(per_piece, 1);
  num_pieces_ = (call_->operation.count + piece_count_ - 1) / piece_count_;
}

void DirectRun::announce(BoardMemory::Slot& slot) {
  const Operation& op = call_->operation;
  slot.num_locations = 0;
  const auto add = [&](const Buffer& buffer) {
    Location& location = slot.locations[slot.num_locations++];
    return engine_.locate(buffer.data, op.out.bytes(), location);
  };
  bool mapped = op.terms.size() + 1 <= BoardMemory::kMaxLocations;
  for (std::size_t i = 0; mapped && i < op.terms.size(); ++i) mapped = add(op.terms[i].value);
  if (mapped && add(op.out)) return;
  slot.num_locations = BoardMemory::kNotMapped;
  for (std::size_t i = 0; i < std::min<std::size_t>(2, num_pieces_); ++i) stage(i);
}

void DirectRun::run() {
  in_place_ = true;
  for (int rank = 0; rank < size_; ++rank) {
    const auto& slot = engine_.board().slot(rank, call_->number);
    in_place_ &= slot.num_locations != BoardMemory::kNotMapped;
  }
  if (in_place_) reduce_in_place();
}

DirectRun::Piece DirectRun::piece(std::size_t index) const {
  const std::size_t begin = index * piece_count_;
  return {begin, std::min(piece_count_, call_->operation.count - begin)};
}

// Equal parts that begin at a cache line of the piece.
DirectRun::Piece DirectRun::slice_of(Piece piece, int rank) const {
  const std::size_t line = 64 / width_, ranks = static_cast<std::size_t>(size_);
  const std::size_t part = ((piece.count + ranks - 1) / ranks + line - 1) / line * line;
  const std::size_t begin = std::min(part * static_cast<std::size_t>(rank), piece.count);
  return {piece.begin + begin, std::min(part, piece.count - begin)};
}

std::byte* DirectRun::address(int rank, const Location& location) const {
  return engine_.mapped(rank, location.arena) + location.offset;
}

// Folds a slice in blocks, looking between them whether a peer gave up (its memory is then its own
// again). `in` and `out` point to the slice's first element. False if one did.
bool DirectRun::reduce(Piece slice, const std::vector<std::byte*>& in,
                       const std::vector<std::byte*>& out) {
  const Operation& op = call_->operation;
  Board& board = engine_.board();
  const std::size_t block = kBlockBytes / width_;
  std::vector<const void*> from(in.size());
  std::vector<void*> to(out.size());
  const CallTrace::Reducing traced(engine_.trace());
  board.own().writing.store(call_->number);
  int gone = -1;
  for (std::size_t begin = 0; begin < slice.count && gone < 0; begin += block) {
    gone = board.first_aborted();
    if (gone >= 0) break;
    for (std::size_t i = 0; i < in.size(); ++i) from[i] = in[i] + begin * width_;
    for (std::size_t i = 0; i < out.size(); ++i) to[i] = out[i] + begin * width_;
    kernel::fold(combine_of(op.op), op.dtype, plan_.steps, from, to,
                 std::min(block, slice.count - begin), op.op == ReduceOp::Mean ? op.total : 0);
  }
  board.own().writing.store(0);
  if (gone >= 0) engine_.fail(board.error_of(gone));
  return gone < 0;
}

void DirectRun::reduce_in_place() {
  const Operation& op = call_->operation;
  Board& board = engine_.board();
  const Piece slice = slice_of({0, op.count}, rank_);
  std::vector<std::byte*> in, out;
  for (int rank = 0; rank < size_; ++rank) {
    const auto& slot = board.slot(rank, call_->number);
    for (std::uint32_t i = 0; i + 1 < slot.num_locations; ++i) {
      in.push_back(address(rank, slot.locations[i]) + slice.begin * width_);
    }
    out.push_back(address(rank, slot.locations[slot.num_locations - 1]) + slice.begin * width_);
  }
  if (!reduce(slice, in, out)) return;
  board.own().done.store(call_->number, std::memory_order_release);
  board.notify_peers();
}

// A staging area is two halves (pieces take turns), each of plan_.most_terms operands and a result.
std::byte* DirectRun::staged_term(int rank, std::size_t index, std::size_t term) const {
  const std::size_t parts = (index % 2) * (plan_.most_terms + 1) + term;
  return engine_.staging_of(rank) + parts * piece_count_ * width_;
}

std::byte* DirectRun::staged_result(int rank, std::size_t index) const {
  return staged_term(rank, index, plan_.most_terms);
}

// Counters are shared by all operations: number of the operation, then of the piece.
std::uint64_t DirectRun::mark(std::size_t index) const { return call_->number << 24 | (index + 1); }

void DirectRun::stage(std::size_t index) {
  const Piece part = piece(index);
  const auto& terms = call_->operation.terms;
  for (std::size_t i = 0; i < terms.size(); ++i) {
    std::memcpy(staged_term(rank_, index, i), bytes_at(terms[i].value, part.begin),
                part.count * width_);
  }
  staged_ = index + 1;
  engine_.board().own().staged.store(mark(index), std::memory_order_release);
}

bool DirectRun::reduce_staged(std::size_t index) {
  const Piece part = piece(index);
  const Piece slice = slice_of({0, part.count}, rank_);
  std::vector<std::byte*> in;
  for (int rank = 0; rank < size_; ++rank) {
    for (std::size_t i = 0; i < plan_.nodes_of[rank].size(); ++i) {
      in.push_back(staged_term(rank, index, i) + slice.begin * width_);
    }
  }
  if (!reduce(slice, in, {staged_result(rank_, index) + slice.begin * width_})) return false;
  reduced_ = index + 1;
  engine_.board().own().reduced.store(mark(index), std::memory_order_release);
  return true;
}

void DirectRun::unstage(std::size_t index) {
  const Piece part = piece(index);
  for (int rank = 0; rank < size_; ++rank) {
    const Piece slice = slice_of({0, part.count}, rank);
    if (slice.count == 0) continue;
    std::memcpy(bytes_at(call_->operation.out, part.begin + slice.begin),
                staged_result(rank, index) + slice.begin * width_, slice.count * width_);
  }
  unstaged_ = index + 1;
}

bool DirectRun::owes(int peer) const {
  const BoardMemory& board = engine_.board().of(peer);
  if (in_place_) return board.done.load() < call_->number;
  if (reduced_ < staged_ && board.staged.load() < mark(reduced_)) return true;
  return unstaged_ < reduced_ && board.reduced.load() < mark(unstaged_);
}

// Piece i + 2 is staged only after i was copied out, so a result is never overwritten too early.
bool DirectRun::poll() {
  Board& board = engine_.board();
  if (in_place_) {
    if (!board.all_reached(&BoardMemory::done, call_->number)) return false;
    engine_.finish(call_);
    return true;
  }
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
  if (unstaged_ == num_pieces_) engine_.finish(call_);
  return moved;
}

}  // namespace comm
}  // namespace v0
}  // namespace trireme
