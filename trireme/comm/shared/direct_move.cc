#include "trireme/comm/shared/direct_move.h"

#include <cstring>
#include <numeric>

#include "trireme/comm/slices.h"

namespace trireme::inline v0::comm {

namespace {

// The block size of push(): a block is read once, and stays in the L1 cache for several writes.
constexpr std::size_t kPushBytes = 16u << 10;

// In bytes.
Slice piece_of(const Operation& op, const std::vector<std::size_t>& counts, int rank, int size) {
  const Slice piece = comm::piece_of(op.count, counts, static_cast<std::size_t>(rank),
                                     static_cast<std::size_t>(size));
  return {piece.begin * size_of(op.dtype), piece.count * size_of(op.dtype)};
}

}  // namespace

std::vector<Part> parts_of(const Operation& op, int rank, int size) {
  const auto from_all = [&](const std::vector<std::size_t>& counts, std::size_t source) {
    std::vector<Part> parts;
    for (int from = 0; from < size; ++from) {
      const Slice piece = piece_of(op, counts, from, size);
      parts.push_back({from, source, piece.begin, piece.count});
    }
    return parts;
  };
  switch (op.kind) {
    case OpKind::Broadcast:
      if (rank == op.root) return {};
      return {{op.root, 0, 0, op.count * size_of(op.dtype)}};
    case OpKind::Scatter: {
      const Slice piece = piece_of(op, op.counts, rank, size);
      return {{op.root, piece.begin, 0, piece.count}};
    }
    case OpKind::Gather:
      return rank == op.root ? from_all(op.counts, 0) : std::vector<Part>();
    case OpKind::AllToAll:
      return op.recv_counts.empty() ? from_all({}, piece_of(op, {}, rank, size).begin)
                                    : from_all(op.recv_counts, 0);
    default:
      return from_all(op.counts, 0);
  }
}

// Announces the input and then the output, if peers write to it (in a broadcast, both are the same
// buffer). all_to_all with unequal pieces announces the counts instead.
void DirectMove::announce() {
  Operation& op = call_->operation;
  memory_.add(op.in);
  if (op.kind == OpKind::AllGather || (op.kind == OpKind::Gather && rank_ == op.root)) {
    memory_.add(op.out);
  }
  if (!op.recv_counts.empty())
    memory_.add({op.counts.data(), op.counts.size() * sizeof(std::size_t), DType::U8});
  memory_.announce(own_slot());
}

// all_to_all with unequal pieces: reads the counts of `part.from`, to find the piece in its input.
bool DirectMove::find_source(Part& part) {
  const Operation& op = operation();
  if (op.recv_counts.empty() || part.bytes == 0) return true;
  std::vector<std::size_t> counts(static_cast<std::size_t>(rank_));
  const auto bytes = std::as_writable_bytes(std::span(counts));
  if (!memory_.read(part.from, 1, 0, bytes)) return false;
  part.source = std::accumulate(counts.begin(), counts.end(), std::size_t{0}) * size_of(op.dtype);
  return true;
}

// Must give the same result on all ranks.
bool DirectMove::pushes() const {
  const Operation& op = operation();
  const auto all = [&](std::uint32_t index) {
    for (int rank = 0; rank < size_; ++rank) {
      if (!memory_.mapped(rank, index)) return false;
    }
    return true;
  };
  switch (op.kind) {
    case OpKind::Broadcast:
      return all(0);
    case OpKind::AllGather:
      return all(1);
    case OpKind::Gather:
      return memory_.mapped(op.root, 1);
    default:
      return false;
  }
}

bool DirectMove::push() {
  const Operation& op = operation();
  const bool cast = op.kind == OpKind::Broadcast;
  const std::size_t width = size_of(op.dtype);
  const Slice piece = cast ? slice_of(op.count * width, 1, static_cast<std::size_t>(rank_), size_)
                           : piece_of(op, op.counts, rank_, size_);
  const std::byte* from =
      cast ? memory_.at(op.root, 0) + piece.begin : static_cast<const std::byte*>(op.in.data);
  std::vector<std::byte*> targets;
  for (int step = 0; step < size_; ++step) {
    // Every rank begins with itself, so that not all write to the same rank at once.
    const int to = (rank_ + step) % size_;
    if (op.kind == OpKind::Gather && to != op.root) continue;
    std::byte* const target = memory_.at(to, cast ? 0 : 1) + piece.begin;
    if (target != from) targets.push_back(target);
  }
  return write_blocks(piece.count, kPushBytes, [&](std::size_t begin, std::size_t bytes) {
    for (std::byte* target : targets) std::memcpy(target + begin, from + begin, bytes);
  });
}

bool DirectMove::pull() {
  const Operation& op = operation();
  const std::vector<Part> parts = parts_of(op, rank_, size_);
  auto* const out = static_cast<std::byte*>(op.out.data);
  for (std::size_t i = 0; i < parts.size(); ++i) {
    // Every rank begins with itself, so that not all read from the same rank at once.
    Part part = parts[(i + static_cast<std::size_t>(rank_)) % parts.size()];
    if (part.bytes == 0) continue;
    if (!find_source(part)) return false;
    if (part.from == rank_) {
      const auto* const in = static_cast<const std::byte*>(op.in.data) + part.source;
      if (in != out + part.target) std::memmove(out + part.target, in, part.bytes);
    } else if (!memory_.read(part.from, 0, part.source, {out + part.target, part.bytes})) {
      return false;
    }
  }
  return memory_.look();
}

// Must give the same result on all ranks: true if an input that peers read is not mapped.
bool DirectMove::stages() const {
  const Operation& op = operation();
  if (!op.recv_counts.empty()) return false;
  const bool one = op.kind == OpKind::Broadcast || op.kind == OpKind::Scatter;
  for (int rank = 0; rank < size_; ++rank) {
    if ((!one || rank == op.root) && !memory_.mapped(rank, 0)) return true;
  }
  return false;
}

void DirectMove::run() {
  memory_.open(call_->number);
  const bool pushed = pushes();
  if (!pushed && stages()) {
    staging_ = std::make_unique<MoveStaging>(engine_, *call_);
    poll();
    return;
  }
  if (!(pushed ? push() : pull())) return;
  declare_done();
  poll();
}

bool DirectMove::waits() const { return staging_ ? staging_->waits() : DirectBase::waits(); }

bool DirectMove::owes(int peer) const {
  return staging_ ? staging_->owes(peer) : DirectBase::owes(peer);
}

bool DirectMove::poll() {
  if (!staging_) return DirectBase::poll();
  const bool moved = staging_->poll();
  if (!staging_->finished()) return moved;
  engine_.finish(call_);
  return true;
}

}  // namespace trireme::inline v0::comm
