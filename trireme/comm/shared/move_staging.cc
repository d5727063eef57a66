#include "trireme/comm/shared/move_staging.h"

#include <algorithm>
#include <cstring>

#include "trireme/comm/slices.h"

namespace trireme::inline v0::comm {
namespace {

// A rank's slots fit into its L2 cache. Slots of 64 and 256 KiB, and 8 slots, were not faster
// (docs/design/009-direct-moves.md).
constexpr std::size_t kSlotBytes = 128u << 10, kNumSlots = 4;
static_assert(kSlotBytes * kNumSlots <= kStagingBytes);

bool all_take_the_same(OpKind kind) noexcept {
  return kind == OpKind::Broadcast || kind == OpKind::AllGather || kind == OpKind::Gather;
}

// The bytes of a slot for each of `size` ranks: whole cache lines, unless a rank has less than one.
std::size_t lane_of(std::size_t size) {
  const std::size_t share = std::max<std::size_t>(kSlotBytes / size, 1);
  return share < 64 ? share : share / 64 * 64;
}

std::size_t pieces_of(std::size_t bytes, std::size_t quantum) {
  return (bytes + quantum - 1) / quantum;
}

// In bytes.
Slice piece_of_rank(const Operation& op, const std::vector<std::size_t>& counts, int rank,
                    int size) {
  const Slice piece = comm::piece_of(op.count, counts, static_cast<std::size_t>(rank),
                                     static_cast<std::size_t>(size));
  return {piece.begin * size_of(op.dtype), piece.count * size_of(op.dtype)};
}

}  // namespace

std::vector<MovedRange> parts_of(const Operation& op, int rank, int size) {
  const auto from_all = [&](const std::vector<std::size_t>& counts, std::size_t source) {
    const std::size_t equal = op.count / static_cast<std::size_t>(size);
    std::vector<MovedRange> parts;
    std::size_t target = 0;
    for (int from = 0; from < size; ++from) {
      const std::size_t count = counts.empty() ? equal : counts[static_cast<std::size_t>(from)];
      parts.push_back({from, source, target, count * size_of(op.dtype)});
      target += parts.back().bytes;
    }
    return parts;
  };
  switch (op.kind) {
    case OpKind::Broadcast:
      if (rank == op.root) return {};
      return {{op.root, 0, 0, op.count * size_of(op.dtype)}};
    case OpKind::Scatter: {
      const Slice piece = piece_of_rank(op, op.counts, rank, size);
      return {{op.root, piece.begin, 0, piece.count}};
    }
    case OpKind::Gather:
      return rank == op.root ? from_all(op.counts, 0) : std::vector<MovedRange>();
    case OpKind::AllToAll:
      return op.recv_counts.empty() ? from_all({}, piece_of_rank(op, {}, rank, size).begin)
                                    : from_all(op.recv_counts, 0);
    default:
      return from_all(op.counts, 0);
  }
}

MoveStaging::MoveStaging(Engine& engine, const Call& call)
    : Staging(engine, call),
      alike_(all_take_the_same(call.operation.kind)),
      quantum_(alike_ ? kSlotBytes : lane_of(static_cast<std::size_t>(size_))) {
  plan_parts();
  BoardMemory& own = engine_.board().own();
  if (incoming_.empty()) {
    taken_ = num_pieces_;
    own.reduced.store(mark(num_pieces_ - 1), std::memory_order_release);
  }
  if (outgoing_.empty()) {
    staged_ = num_pieces_;
    own.staged.store(mark(num_pieces_ - 1), std::memory_order_release);
  }
  while (may_stage()) stage();
  engine_.board().notify_peers();
  copy_own();  // while the others take
}

void MoveStaging::plan_parts() {
  std::size_t most = 0;
  for (int taker = 0; taker < size_; ++taker) {
    for (const MovedRange& part : parts_of(call_.operation, taker, size_)) {
      if (part.from == taker) {
        if (taker == rank_) own_ = part;
        continue;
      }
      most = std::max(most, part.bytes);
      if (part.bytes == 0) continue;
      if (taker == rank_) incoming_.push_back(part);
      if (part.from != rank_ || (alike_ && !outgoing_.empty())) continue;
      outgoing_.push_back({alike_ ? 0 : static_cast<std::size_t>(taker), part.source, part.bytes});
    }
  }
  num_pieces_ = std::max<std::size_t>(1, pieces_of(most, quantum_));
}

void MoveStaging::copy_own() const {
  const Operation& op = call_.operation;
  if (own_.bytes == 0) return;
  const auto* const from = static_cast<const std::byte*>(op.in.data) + own_.source;
  auto* const to = static_cast<std::byte*>(op.out.data) + own_.target;
  if (from != to) std::memmove(to, from, own_.bytes);
}

std::byte* MoveStaging::slot(int rank, std::size_t index, std::size_t lane) const {
  return engine_.arenas->staging_of(rank) + index % kNumSlots * kSlotBytes + lane * quantum_;
}

bool MoveStaging::may_stage() const {
  if (staged_ == num_pieces_) return false;
  return staged_ < kNumSlots ||
         engine_.board().all_reached(&BoardMemory::reduced, mark(staged_ - kNumSlots));
}

bool MoveStaging::may_take() const {
  return taken_ < num_pieces_ && engine_.board().all_reached(&BoardMemory::staged, mark(taken_));
}

void MoveStaging::stage() {
  const auto* const in = static_cast<const std::byte*>(call_.operation.in.data);
  const std::size_t begin = staged_ * quantum_;
  for (const Outgoing& part : outgoing_) {
    if (begin >= part.bytes) continue;
    std::memcpy(slot(rank_, staged_, part.lane), in + part.source + begin,
                std::min(quantum_, part.bytes - begin));
  }
  engine_.board().own().staged.store(mark(staged_++), std::memory_order_release);
}

void MoveStaging::take() {
  auto* const out = static_cast<std::byte*>(call_.operation.out.data);
  const std::size_t begin = taken_ * quantum_;
  const std::size_t lane = alike_ ? 0 : static_cast<std::size_t>(rank_);
  for (const MovedRange& part : incoming_) {
    if (begin >= part.bytes) continue;
    std::memcpy(out + part.target + begin, slot(part.from, taken_, lane),
                std::min(quantum_, part.bytes - begin));
  }
  engine_.board().own().reduced.store(mark(taken_++), std::memory_order_release);
}

bool MoveStaging::poll() {
  bool moved = false;
  for (bool again = true; again; moved |= again) {
    again = false;
    if (may_take()) {
      take();
      again = true;
    }
    if (may_stage()) {
      stage();
      again = true;
    }
    if (again) engine_.board().notify_peers();
  }
  return moved;
}

bool MoveStaging::finished() const {
  return staged_ == num_pieces_ && taken_ == num_pieces_ &&
         engine_.board().all_reached(&BoardMemory::reduced, mark(num_pieces_ - 1));
}

bool MoveStaging::waits() const { return !may_take() && !may_stage() && !finished(); }

bool MoveStaging::owes(int peer) const {
  const BoardMemory& board = engine_.board().of(peer);
  if (taken_ < num_pieces_ && board.staged.load() < mark(taken_)) return true;
  const std::size_t wanted = staged_ == num_pieces_ ? num_pieces_ : staged_ + 1 - kNumSlots;
  return (staged_ == num_pieces_ || staged_ >= kNumSlots) &&
         board.reduced.load() < mark(wanted - 1);
}

}  // namespace trireme::inline v0::comm
