#include "trireme/comm/calls/inline_run.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <span>
#include <vector>

#include "trireme/comm/slices.h"
#include "trireme/kernel/reduce.h"

namespace trireme::inline v0::comm {
namespace {

constexpr std::size_t kPayload = Envelope::kPayload;

// Folds every rank's terms, which begin at byte `offset` of its payload, into `out`.
void fold(const Operation& op, const FoldPlan& plan, std::size_t offset,
          std::span<const std::byte* const> payloads) {
  const std::size_t bytes = op.out.bytes();
  const std::size_t count = plan.steps.size() + 1;
  std::array<const void*, 16> few;
  std::vector<const void*> many(count > few.size() ? count : 0);
  const std::span operands = many.empty() ? std::span(few).first(count) : std::span(many);
  std::size_t next = 0;
  for (std::size_t rank = 0; rank < payloads.size(); ++rank) {
    for (std::size_t i = 0; i < plan.nodes_of[rank].size(); ++i) {
      operands[next++] = payloads[rank] + offset + i * bytes;
    }
  }
  void* const out[] = {op.out.data};
  kernel::fold(combine_of(op.op), op.dtype, plan.steps, operands, out, op.out.count,
               op.op == ReduceOp::Mean ? op.total : 0);
}

// The offset of `rank`'s piece, in bytes.
std::size_t offset_of(const Operation& op, std::size_t rank, std::size_t ranks) {
  return piece_of(op.count, op.counts, rank, ranks).begin * size_of(op.dtype);
}

void copy(std::byte* to, const std::byte* from, std::size_t bytes) {
  if (bytes > 0) std::memcpy(to, from, bytes);
}

}  // namespace

bool fits_header(const Operation& op, const FoldPlan& plan) {
  const std::size_t width = size_of(op.dtype);
  switch (op.kind) {
    case OpKind::Barrier:
      return true;
    case OpKind::AllReduce:
      return plan.most_terms * op.count * width <= kPayload;
    case OpKind::AllToAll:
      return op.recv_counts.empty() && op.count * width <= kPayload;
    case OpKind::AllGather:
    case OpKind::Gather:
      return *std::max_element(op.counts.begin(), op.counts.end()) * width <= kPayload;
    default:
      return op.count * width <= kPayload;
  }
}

void fill_payload(const Operation& op, int rank, std::byte* payload) {
  const bool from_root = op.kind == OpKind::Broadcast || op.kind == OpKind::Scatter;
  if (op.kind == OpKind::AllReduce) {
    for (const Term& term : op.terms) {
      copy(payload, static_cast<const std::byte*>(term.value.data), op.out.bytes());
      payload += op.out.bytes();
    }
  } else if (op.kind != OpKind::Barrier && (op.root == rank || !from_root)) {
    copy(payload, static_cast<const std::byte*>(op.in.data), op.in.bytes());
  }
}

void complete_inline(const Operation& op, const FoldPlan& plan, int rank,
                     std::span<const std::byte* const> payloads) {
  auto* out = static_cast<std::byte*>(op.out.data);
  const auto own = static_cast<std::size_t>(rank);
  const bool to_root = op.kind == OpKind::Reduce || op.kind == OpKind::Gather;
  if (to_root && op.root != rank) return;
  switch (op.kind) {
    case OpKind::Reduce:
    case OpKind::AllReduce:
      return fold(op, plan, 0, payloads);
    case OpKind::ReduceScatter:
      return fold(op, plan, offset_of(op, own, payloads.size()), payloads);
    case OpKind::Broadcast:
      return copy(out, payloads[static_cast<std::size_t>(op.root)], op.out.bytes());
    case OpKind::Scatter:
      return copy(out,
                  payloads[static_cast<std::size_t>(op.root)] + offset_of(op, own, payloads.size()),
                  op.out.bytes());
    case OpKind::AllToAll:
      for (std::size_t peer = 0; peer < payloads.size(); ++peer) {
        const std::size_t bytes = op.out.bytes() / payloads.size();
        copy(out + peer * bytes, payloads[peer] + own * bytes, bytes);
      }
      return;
    case OpKind::Gather:
    case OpKind::AllGather:
      for (std::size_t peer = 0; peer < payloads.size(); ++peer) {
        const std::size_t bytes = op.counts[peer] * size_of(op.dtype);
        copy(out, payloads[peer], bytes);
        out += bytes;
      }
      return;
    default:
      return;
  }
}

}  // namespace trireme::inline v0::comm
