#include "trireme/comm/shared/direct_move.h"

#include <cstring>
#include <numeric>

#include "trireme/comm/slices.h"

namespace trireme::inline v0::comm {

// The block size of push(): a block is read once, and stays in the L1 cache for several writes.
constexpr std::size_t kPushBytes = 16u << 10;

// Announces the input and then the output, if peers write to it (in a broadcast, both are the same
// buffer). all_to_all with unequal pieces announces the counts instead.
void DirectMove::announce() {
  Operation& op = call_->operation;
  add(op.in);
  if (op.kind == OpKind::AllGather || (op.kind == OpKind::Gather && rank_ == op.root)) {
    add(op.out);
  }
  if (!op.recv_counts.empty())
    add({op.counts.data(), op.counts.size() * sizeof(std::size_t), DType::U8});
  put_locations();
}

// all_to_all with unequal pieces: reads the counts of `part.from`, to find the piece in its input.
bool DirectMove::find_source(MovedRange& part) {
  const Operation& op = operation();
  if (op.recv_counts.empty() || part.bytes == 0) return true;
  std::vector<std::size_t> counts(static_cast<std::size_t>(rank_));
  const auto bytes = std::as_writable_bytes(std::span(counts));
  if (!read(part.from, 1, 0, bytes)) return false;
  part.source = std::accumulate(counts.begin(), counts.end(), std::size_t{0}) * size_of(op.dtype);
  return true;
}

// Must give the same result on all ranks.
bool DirectMove::pushes() const {
  const Operation& op = operation();
  const auto all = [&](std::uint32_t index) {
    for (int rank = 0; rank < size_; ++rank) {
      if (!mapped(rank, index)) return false;
    }
    return true;
  };
  switch (op.kind) {
    case OpKind::Broadcast:
      return all(0);
    case OpKind::AllGather:
      return all(1);
    case OpKind::Gather:
      return mapped(op.root, 1);
    default:
      return false;
  }
}

bool DirectMove::push() {
  const Operation& op = operation();
  const bool cast = op.kind == OpKind::Broadcast;
  const std::size_t width = size_of(op.dtype);
  const auto rank = static_cast<std::size_t>(rank_);
  Slice piece = cast ? slice_of(op.count * width, 1, rank, size_)
                     : piece_of(op.count, op.counts, rank, size_);
  if (!cast) piece = {piece.begin * width, piece.count * width};
  const std::byte* from =
      cast ? at(op.root, 0) + piece.begin : static_cast<const std::byte*>(op.in.data);
  std::vector<std::byte*> targets;
  for (int step = 0; step < size_; ++step) {
    // Every rank begins with itself, so that not all write to the same rank at once.
    const int to = (rank_ + step) % size_;
    if (op.kind == OpKind::Gather && to != op.root) continue;
    std::byte* const target = at(to, cast ? 0 : 1) + piece.begin;
    if (target != from) targets.push_back(target);
  }
  return write_blocks(piece.count, kPushBytes, [&](std::size_t begin, std::size_t bytes) {
    for (std::byte* target : targets) std::memcpy(target + begin, from + begin, bytes);
  });
}

bool DirectMove::pull() {
  const Operation& op = operation();
  const std::vector<MovedRange> parts = parts_of(op, rank_, size_);
  auto* const out = static_cast<std::byte*>(op.out.data);
  for (std::size_t i = 0; i < parts.size(); ++i) {
    // Every rank begins with itself, so that not all read from the same rank at once.
    MovedRange part = parts[(i + static_cast<std::size_t>(rank_)) % parts.size()];
    if (part.bytes == 0) continue;
    if (!find_source(part)) return false;
    if (part.from == rank_) {
      const auto* const in = static_cast<const std::byte*>(op.in.data) + part.source;
      if (in != out + part.target) std::memmove(out + part.target, in, part.bytes);
    } else if (!read(part.from, 0, part.source, {out + part.target, part.bytes})) {
      return false;
    }
  }
  return look();
}

// Must give the same result on all ranks: true if an input that peers read is not mapped.
bool DirectMove::stages() const {
  const Operation& op = operation();
  if (!op.recv_counts.empty()) return false;
  const bool one = op.kind == OpKind::Broadcast || op.kind == OpKind::Scatter;
  for (int rank = 0; rank < size_; ++rank) {
    if ((!one || rank == op.root) && !mapped(rank, 0)) return true;
  }
  return false;
}

void DirectMove::run() {
  const bool pushed = pushes();
  if (!pushed && stages()) {
    moves_.emplace(engine_, *call_);
    staging_ = &*moves_;
  } else if (pushed ? push() : pull()) {
    declare_done();
  } else {
    return;  // the engine has failed
  }
  poll();
}

}  // namespace trireme::inline v0::comm
