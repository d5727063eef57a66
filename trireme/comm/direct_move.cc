#include "trireme/comm/direct_move.h"

#include <cstring>
#include <utility>

namespace trireme {
inline namespace v0 {
namespace comm {

std::vector<Part> parts_of(const Operation& op, int rank, int size) {
  const std::size_t width = size_of(op.dtype);
  std::vector<Part> parts;
  switch (op.kind) {
    case OpKind::Broadcast:
      if (rank != op.root) parts.push_back({op.root, 0, 0, op.count * width});
      break;
    case OpKind::AllGather: {
      std::size_t target = 0;
      for (int from = 0; from < size; ++from) {
        const std::size_t bytes = op.counts[static_cast<std::size_t>(from)] * width;
        parts.push_back({from, 0, target, bytes});
        target += bytes;
      }
      break;
    }
    default:
      break;
  }
  return parts;
}

bool reads(const Operation& op, int reader, int rank) noexcept {
  if (reader == rank) return false;
  switch (op.kind) {
    case OpKind::Broadcast:
      return rank == op.root;
    default:
      return true;
  }
}

DirectMove::DirectMove(Engine& engine, std::shared_ptr<Call> call)
    : engine_(engine), call_(std::move(call)), memory_(engine) {}

void DirectMove::announce(BoardMemory::Slot& slot) {
  memory_.add(call_->operation.in);
  memory_.announce(slot);
}

void DirectMove::run() {
  const Operation& op = call_->operation;
  const int rank = engine_.rank(), size = engine_.size();
  memory_.open(call_->number);
  const std::vector<Part> parts = parts_of(op, rank, size);
  auto* const out = static_cast<std::byte*>(op.out.data);
  for (std::size_t i = 0; i < parts.size(); ++i) {
    // Everyone begins with itself and goes on upwards, so that not all read from one at once.
    const Part& part = parts[(i + static_cast<std::size_t>(rank)) % parts.size()];
    if (part.bytes == 0) continue;
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

bool DirectMove::owes(int peer) const {
  return reads(call_->operation, peer, engine_.rank()) &&
         engine_.board().of(peer).done.load(std::memory_order_acquire) < call_->number;
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
