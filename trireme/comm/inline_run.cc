#include "trireme/comm/inline_run.h"

#include <algorithm>
#include <cstring>

#include "trireme/comm/combine.h"
#include "trireme/kernel/reduce.h"

namespace trireme {
inline namespace v0 {
namespace comm {
namespace {

using kernel::LeafRange;

std::vector<LeafRange> terms_of_rank(const Operation& op, int size, int rank) {
  if (op.total == static_cast<std::uint32_t>(size)) return {{static_cast<std::uint32_t>(rank), 1}};
  return kernel::maximal_nodes(kernel::contiguous_share(op.total, size, rank), op.total);
}

std::size_t largest_number_of_terms(const Operation& op, int size) {
  std::size_t most = 1;
  for (int rank = 0; rank < size; ++rank) most = std::max(most, terms_of_rank(op, size, rank).size());
  return most;
}

// Every rank's terms, ascending, out of the headers.
void all_reduce(const Call& call, int size) {
  const Operation& op = call.operation;
  const std::size_t bytes = op.out.bytes();
  std::vector<LeafRange> nodes;
  std::vector<const void*> operands;
  for (int rank = 0; rank < size; ++rank) {
    const std::byte* data = call.headers[rank].payload.data();
    for (const LeafRange& node : terms_of_rank(op, size, rank)) {
      nodes.push_back(node);
      operands.push_back(data);
      data += bytes;
    }
  }
  void* const out[] = {op.out.data};
  kernel::fold(combine_of(op.op), op.dtype, kernel::fold_steps(nodes, op.total), operands, out,
               op.count, op.op == ReduceOp::Mean ? op.total : 0, false);
}

void reduce_scatter(const Call& call, int rank, int size) {
  const Operation& op = call.operation;
  std::vector<LeafRange> nodes;
  std::vector<const void*> operands;
  for (int peer = 0; peer < size; ++peer) {
    nodes.push_back({static_cast<std::uint32_t>(peer), 1});
    operands.push_back(call.headers[peer].payload.data() + rank * op.out.bytes());
  }
  void* const out[] = {op.out.data};
  kernel::fold(combine_of(op.op), op.dtype, kernel::fold_steps(nodes, op.total), operands, out,
               op.out.count, op.op == ReduceOp::Mean ? op.total : 0, false);
}

void copy_to(const Buffer& out, std::size_t offset, const std::byte* from, std::size_t bytes) {
  if (bytes > 0) std::memcpy(static_cast<std::byte*>(out.data) + offset, from, bytes);
}

}  // namespace

bool fits_header(const Operation& op, int, int size) {
  const std::size_t width = size_of(op.dtype);
  switch (op.kind) {
    case OpKind::Barrier: return true;
    case OpKind::AllReduce:
      if (op.count * width > Header::kPayload) return false;
      if (op.total == static_cast<std::uint32_t>(size)) return true;
      return largest_number_of_terms(op, size) * op.count * width <= Header::kPayload;
    case OpKind::AllGather:
      return *std::max_element(op.counts.begin(), op.counts.end()) * width <= Header::kPayload;
    default: return op.count * width <= Header::kPayload;
  }
}

void fill_header(Call& call, int rank) {
  const Operation& op = call.operation;
  std::byte* to = call.own.payload.data();
  if (op.kind == OpKind::AllReduce) {
    for (const Term& term : op.terms) {
      if (op.count > 0) std::memcpy(to, term.value.data, op.out.bytes());
      to += op.out.bytes();
    }
  } else if (op.kind != OpKind::Barrier && (op.kind != OpKind::Broadcast || op.root == rank)) {
    if (op.in.count > 0) std::memcpy(to, op.in.data, op.in.bytes());
  }
}

void complete_inline(const Call& call, int rank, int size) {
  const Operation& op = call.operation;
  switch (op.kind) {
    case OpKind::AllReduce: return all_reduce(call, size);
    case OpKind::ReduceScatter: return reduce_scatter(call, rank, size);
    case OpKind::Broadcast:
      return copy_to(op.out, 0, call.headers[op.root].payload.data(), op.out.bytes());
    case OpKind::AllGather: {
      std::size_t offset = 0;
      for (int peer = 0; peer < size; ++peer) {
        const std::size_t bytes = op.counts[peer] * size_of(op.dtype);
        copy_to(op.out, offset, call.headers[peer].payload.data(), bytes);
        offset += bytes;
      }
      return;
    }
    default: return;
  }
}

}  // namespace comm
}  // namespace v0
}  // namespace trireme
