#include "trireme/comm/direct/direct_move.h"

#include <cstring>
#include <numeric>
#include <utility>

namespace trireme {
inline namespace v0 {
namespace comm {

namespace {

// Piece `rank` of a whole, in bytes from its beginning; `counts` empty: equal pieces.
struct Bounds {
  std::size_t begin = 0, bytes = 0;
};
Bounds piece_of(const Operation& op, const std::vector<std::size_t>& counts, int rank, int size) {
  const std::size_t width = size_of(op.dtype), at = static_cast<std::size_t>(rank);
  if (counts.empty()) {
    const std::size_t piece = op.count / static_cast<std::size_t>(size) * width;
    return {at * piece, piece};
  }
  return {std::accumulate(counts.begin(), counts.begin() + rank, std::size_t{0}) * width,
          counts[at] * width};
}

}  // namespace

std::vector<Part> parts_of(const Operation& op, int rank, int size) {
  const auto from_all = [&](const std::vector<std::size_t>& counts, std::size_t source) {
    std::vector<Part> parts;
    for (int from = 0; from < size; ++from) {
      const Bounds piece = piece_of(op, counts, from, size);
      parts.push_back({from, source, piece.begin, piece.bytes});
    }
    return parts;
  };
  switch (op.kind) {
    case OpKind::Broadcast:
      if (rank == op.root) return {};
      return {{op.root, 0, 0, op.count * size_of(op.dtype)}};
    case OpKind::Scatter: {
      const Bounds piece = piece_of(op, op.counts, rank, size);
      return {{op.root, piece.begin, 0, piece.bytes}};
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

DirectMove::DirectMove(Engine& engine, std::shared_ptr<Call> call)
    : engine_(engine), call_(std::move(call)), memory_(engine) {}

void DirectMove::announce(BoardMemory::Slot& slot) {
  Operation& op = call_->operation;
  memory_.add(op.in);
  if (!op.recv_counts.empty())
    memory_.add({op.counts.data(), op.counts.size() * sizeof(std::size_t), DType::U8});
  memory_.announce(slot);
}

// all_to_all of unequal pieces: only `part.from` knows where in its input this rank's piece begins.
bool DirectMove::find_source(Part& part) {
  const Operation& op = call_->operation;
  if (op.recv_counts.empty() || part.bytes == 0) return true;
  std::vector<std::size_t> counts(static_cast<std::size_t>(engine_.rank()));
  const auto bytes = std::as_writable_bytes(std::span(counts));
  if (!memory_.read(part.from, 1, 0, bytes)) return false;
  part.source = std::accumulate(counts.begin(), counts.end(), std::size_t{0}) * size_of(op.dtype);
  return true;
}

void DirectMove::run() {
  const Operation& op = call_->operation;
  const int rank = engine_.rank(), size = engine_.size();
  memory_.open(call_->number);
  const std::vector<Part> parts = parts_of(op, rank, size);
  auto* const out = static_cast<std::byte*>(op.out.data);
  for (std::size_t i = 0; i < parts.size(); ++i) {
    // Everyone begins with itself and goes on upwards, so that not all read from one at once.
    Part part = parts[(i + static_cast<std::size_t>(rank)) % parts.size()];
    if (part.bytes == 0) continue;
    if (!find_source(part)) return;
    if (part.from == rank) {
      const auto* const in = static_cast<const std::byte*>(op.in.data) + part.source;
      if (in != out + part.target) std::memmove(out + part.target, in, part.bytes);
    } else if (!memory_.read(part.from, 0, part.source, {out + part.target, part.bytes})) {
      return;
    }
  }
  if (!memory_.look()) return;
  engine_.board().own().done.store(call_->number, std::memory_order_release);
  engine_.board().notify_peers();
  poll();
}

// All ranks, not those alone that read from this one: who has ended may leave the group, and that
// must not meet a rank that is still at it.
bool DirectMove::owes(int peer) const {
  return engine_.board().of(peer).done.load(std::memory_order_acquire) < call_->number;
}

bool DirectMove::waits() const {
  for (int peer = 0; peer < engine_.size(); ++peer) {
    if (owes(peer)) return true;
  }
  return false;
}

bool DirectMove::poll() {
  if (waits()) return false;
  engine_.finish(call_);
  return true;
}

}  // namespace comm
}  // namespace v0
}  // namespace trireme
