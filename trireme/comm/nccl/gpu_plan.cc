#include "trireme/comm/nccl/gpu_plan.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "trireme/base/check.h"
#include "trireme/base/error.h"
#include "trireme/comm/engine.h"
#include "trireme/comm/nccl/nccl_api.h"
#include "trireme/kernel/cuda/kernel_image.h"

namespace trireme::inline v0::comm::nccl {
namespace {

using kernel::cuda::FoldArguments;
using kernel::cuda::kMostOperands;

bool reduces(OpKind kind) {
  return kind == OpKind::AllReduce || kind == OpKind::Reduce || kind == OpKind::ReduceScatter;
}

// Only types that can be reduced.
int type_of(DType dtype) {
  constexpr NcclType kTypes[] = {kNcclFloat64, kNcclFloat32, kNcclBfloat16,
                                 kNcclFloat16, kNcclInt64,   kNcclInt32};
  const auto index = static_cast<std::size_t>(dtype);
  return index < std::size(kTypes) ? kTypes[index] : kNcclUint8;
}

int op_of(ReduceOp op) {
  constexpr NcclOp kOps[] = {kNcclSum, kNcclAvg, kNcclMin, kNcclMax, kNcclProd};
  return kOps[static_cast<std::size_t>(op)];
}

class Steps {
 public:
  Steps(const Operation& operation, const GpuPlace& place, std::byte* scratch)
      : op_(operation),
        rank_(place.rank),
        size_(place.size),
        plan_(place.plan),
        width_(size_of(operation.dtype)),
        scratch_(scratch) {}

  // Without groups that nothing was added to.
  std::vector<GpuStep> take() {
    std::erase_if(
        steps_, [](const GpuStep& one) { return one.kind == GpuStep::Nccl && one.calls.empty(); });
    return std::move(steps_);
  }

  void alone();
  void fixed_tree();
  void native();
  void move();

 private:
  using Bytes = const std::byte*;
  static Bytes at(const void* base, std::size_t bytes) { return static_cast<Bytes>(base) + bytes; }
  static std::byte* at(void* base, std::size_t bytes) {
    return static_cast<std::byte*>(base) + bytes;
  }
  std::size_t nodes(int rank) const { return plan_.nodes_of[rank].size(); }
  const void* term(std::size_t i) const {
    return op_.kind == OpKind::AllReduce ? op_.terms[i].value.data : op_.in.data;
  }

  GpuStep& step(GpuStep::Kind kind) {
    steps_.push_back({.kind = kind, .op = combine_of(op_.op), .dtype = op_.dtype});
    return steps_.back();
  }
  void copy(void* to, const void* from, std::size_t bytes) {
    if (bytes == 0 || to == from) return;
    GpuStep& copied = step(GpuStep::Copy);
    copied.to = to, copied.from = from, copied.bytes = bytes;
  }
  // Adds a call that only moves data to a step's group, unless there is none. It moves bytes.
  static void add_move(GpuStep& group, NcclCall::Kind kind, const void* in, void* out,
                       std::size_t bytes, int peer = 0) {
    if (bytes == 0) return;
    group.calls.push_back(
        {.kind = kind, .in = in, .out = out, .count = bytes, .type = kNcclUint8, .peer = peer});
  }
  static void send(GpuStep& group, const void* in, std::size_t bytes, int peer) {
    add_move(group, NcclCall::Send, in, nullptr, bytes, peer);
  }
  static void recv(GpuStep& group, void* out, std::size_t bytes, int peer) {
    add_move(group, NcclCall::Recv, nullptr, out, bytes, peer);
  }

  void fold_pieces(std::span<const std::size_t> begins, std::span<const std::size_t> counts,
                   std::byte* out);
  void fold_round(std::size_t begin, std::size_t count);
  void fold_own_terms();
  void gather_slices(std::size_t begin, std::size_t slice, std::byte* folded);
  std::vector<std::size_t> pieces() const;
  void native_reduce_scatter();
  void all_gather();
  void exchange(std::span<const std::size_t> to, std::span<const std::size_t> from);

  const Operation& op_;
  const int rank_, size_;
  const FoldPlan& plan_;
  const std::size_t width_;
  std::byte* const scratch_;
  std::vector<GpuStep> steps_;
};

// The elements of a round, chosen so that the received terms fit into the scratch memory. A
// multiple of `size` if there is more than one round.
std::size_t round_of(std::size_t count, std::size_t terms, int size, std::size_t width) {
  const std::size_t most = kGpuScratch / (std::max<std::size_t>(terms, 1) * width);
  const std::size_t ranks = static_cast<std::size_t>(size);
  return count <= most * ranks ? std::max<std::size_t>(count, 1)
                               : std::max<std::size_t>(most, 1) * ranks;
}

// The elements that each rank folds in a round of `count`; 0: every rank folds all.
std::size_t slice_of(std::size_t count, std::size_t terms, int size, std::size_t width) {
  return count * terms * width <= kFoldEverywhere ? 0 : count / static_cast<std::size_t>(size);
}

std::size_t all_terms(const FoldPlan& plan) {
  return std::accumulate(plan.nodes_of.begin(), plan.nodes_of.end(), std::size_t(0),
                         [](std::size_t sum, const auto& nodes) { return sum + nodes.size(); });
}

// Every rank sends its terms of piece r (counts[r] elements from begins[r] on) to rank r, which
// folds them into `out`. A rank's own terms are not copied.
void Steps::fold_pieces(std::span<const std::size_t> begins, std::span<const std::size_t> counts,
                        std::byte* out) {
  const std::size_t own = counts[rank_] * width_;
  auto fold = std::make_unique<FoldArguments>();
  std::byte* free = scratch_;
  GpuStep& group = step(GpuStep::Nccl);
  for (int peer = 0; peer < size_; ++peer) {
    for (std::size_t i = 0; i < nodes(rank_) && peer != rank_; ++i) {
      send(group, at(term(i), begins[peer] * width_), counts[peer] * width_, peer);
    }
    for (std::size_t i = 0; i < nodes(peer) && own > 0; ++i) {
      const bool here = peer == rank_;
      fold->in[fold->num_operands++] = here ? at(term(i), begins[rank_] * width_) : free;
      if (here) continue;
      recv(group, free, own, peer);
      free += own;
    }
  }
  if (own == 0) return;
  const auto merges = kernel::cuda::merge_counts(plan_.steps, fold->num_operands);
  std::copy(merges.begin(), merges.end(), fold->merges);
  fold->out = out;
  fold->count = counts[rank_];
  fold->by = op_.op == ReduceOp::Mean ? op_.total : 0;
  step(GpuStep::Fold).fold = std::move(fold);
}

// Sends the folded slices of a round to all ranks (all_reduce) or to the root (reduce).
void Steps::gather_slices(std::size_t begin, std::size_t slice, std::byte* folded) {
  if (size_ == 1) return;
  const std::size_t bytes = slice * width_;
  std::byte* const out = at(op_.out.data, begin * width_);
  GpuStep& group = step(GpuStep::Nccl);
  if (op_.kind == OpKind::AllReduce) {
    add_move(group, NcclCall::AllGather, folded, out, bytes);
  } else if (rank_ != op_.root) {
    send(group, folded, bytes, op_.root);
  } else {
    for (int peer = 0; peer < size_; ++peer) {
      if (peer != rank_) recv(group, at(out, peer * bytes), bytes, peer);
    }
  }
}

// One round of all_reduce or reduce: elements [begin, begin + count).
void Steps::fold_round(std::size_t begin, std::size_t count) {
  const std::size_t ranks = static_cast<std::size_t>(size_);
  const std::size_t slice = slice_of(count, all_terms(plan_), size_, width_);
  const std::size_t tail = count - slice * ranks, tail_begin = begin + slice * ranks;
  const bool takes_all = op_.kind == OpKind::AllReduce || rank_ == op_.root;
  if (slice > 0) {
    std::vector<std::size_t> begins(ranks), counts(ranks, slice);
    for (std::size_t r = 0; r < ranks; ++r) begins[r] = begin + r * slice;
    // A rank that does not get the result folds its slice into scratch, behind the received terms.
    std::byte* const folded = takes_all
                                  ? at(op_.out.data, begins[rank_] * width_)
                                  : scratch_ + (all_terms(plan_) - nodes(rank_)) * slice * width_;
    fold_pieces(begins, counts, folded);
    gather_slices(begin, slice, folded);
  }
  if (tail == 0) return;
  std::vector<std::size_t> begins(ranks, tail_begin), counts(ranks, tail);
  if (op_.kind == OpKind::Reduce) {
    for (int r = 0; r < size_; ++r) counts[r] = r == op_.root ? tail : 0;
  }
  fold_pieces(begins, counts, takes_all ? at(op_.out.data, tail_begin * width_) : nullptr);
}

std::vector<std::size_t> Steps::pieces() const {
  if (!op_.counts.empty()) return op_.counts;
  return std::vector<std::size_t>(static_cast<std::size_t>(size_),
                                  op_.count / static_cast<std::size_t>(size_));
}

void Steps::alone() {
  const void* const from = op_.kind == OpKind::AllReduce ? term(0) : op_.in.data;
  copy(op_.out.data, from, op_.out.bytes());
}

void Steps::fixed_tree() {
  if (op_.kind != OpKind::ReduceScatter) {
    const std::size_t round = round_of(op_.count, all_terms(plan_), size_, width_);
    for (std::size_t begin = 0; begin < op_.count; begin += round) {
      fold_round(begin, std::min(round, op_.count - begin));
    }
    return;
  }
  // reduce_scatter: round i handles the i-th part of every piece.
  const auto lengths = pieces();
  std::vector<std::size_t> offsets(lengths.size());
  std::exclusive_scan(lengths.begin(), lengths.end(), offsets.begin(), std::size_t(0));
  const std::size_t longest = *std::max_element(lengths.begin(), lengths.end());
  const std::size_t round = round_of(longest, all_terms(plan_), 1, width_);
  for (std::size_t done = 0; done < longest; done += round) {
    auto begins = offsets, counts = lengths;
    for (std::size_t r = 0; r < lengths.size(); ++r) {
      const std::size_t past = std::min(done, lengths[r]);
      begins[r] += past;
      counts[r] = std::min(round, lengths[r] - past);
    }
    fold_pieces(begins, counts, at(op_.out.data, std::min(done, lengths[rank_]) * width_));
  }
}

// Folds this rank's terms, left to right, into `out`, which NCCL then reduces.
void Steps::fold_own_terms() {
  auto fold = std::make_unique<FoldArguments>();
  for (std::size_t i = 0; i < nodes(rank_); ++i) {
    fold->merges[fold->num_operands] = i > 0;
    fold->in[fold->num_operands++] = term(i);
  }
  fold->out = op_.out.data;
  fold->count = op_.count;
  step(GpuStep::Fold).fold = std::move(fold);
}

void Steps::native_reduce_scatter() {
  GpuStep& group = step(GpuStep::Nccl);
  NcclCall call{.kind = NcclCall::ReduceScatter,
                .in = op_.in.data,
                .out = op_.out.data,
                .count = op_.out.count,
                .type = type_of(op_.dtype),
                .op = op_of(op_.op)};
  if (op_.counts.empty()) return group.calls.push_back(call);
  call.kind = NcclCall::Reduce;
  for (call.peer = 0; call.peer < size_; ++call.peer) {
    call.count = op_.counts[call.peer];
    if (call.count > 0) group.calls.push_back(call);
    call.in = at(call.in, call.count * width_);
  }
}

void Steps::native() {
  if (op_.kind == OpKind::ReduceScatter) return native_reduce_scatter();
  if (op_.count == 0) return;
  NcclCall call{.kind = NcclCall::AllReduce,
                .in = op_.in.data,
                .out = op_.out.data,
                .count = op_.count,
                .type = type_of(op_.dtype),
                .op = op_of(op_.op),
                .peer = op_.root};
  if (op_.kind == OpKind::Reduce) {
    call.kind = NcclCall::Reduce;
  } else if (nodes(rank_) == 1) {
    call.in = term(0);
  } else if (nodes(rank_) > 1) {
    fold_own_terms();
    call.in = op_.out.data;
  } else {
    GpuStep& nothing = step(GpuStep::Clear);
    nothing.to = op_.out.data, nothing.bytes = op_.out.bytes();
    call.in = op_.out.data;
  }
  step(GpuStep::Nccl).calls.push_back(call);
}

void Steps::all_gather() {
  const auto lengths = pieces();
  GpuStep& group = step(GpuStep::Nccl);
  if (std::equal(lengths.begin() + 1, lengths.end(), lengths.begin())) {
    return add_move(group, NcclCall::AllGather, op_.in.data, op_.out.data, op_.in.bytes());
  }
  std::byte* out = static_cast<std::byte*>(op_.out.data);
  for (int root = 0; root < size_; ++root) {
    const std::size_t bytes = lengths[root] * width_;
    add_move(group, NcclCall::Broadcast, root == rank_ ? op_.in.data : out, out, bytes, root);
    out += bytes;
  }
}

// Sends to[p] elements of `in` to each rank p, and receives from[p] elements of `out` from it.
void Steps::exchange(std::span<const std::size_t> to, std::span<const std::size_t> from) {
  std::size_t in = 0, out = 0;
  const void* own = nullptr;
  GpuStep& group = step(GpuStep::Nccl);
  for (int peer = 0; peer < size_; ++peer) {
    if (peer == rank_ && to[peer] > 0) own = at(op_.in.data, in);
    if (peer != rank_) send(group, at(op_.in.data, in), to[peer] * width_, peer);
    in += to[peer] * width_;
  }
  std::byte* own_out = nullptr;
  for (int peer = 0; peer < size_; ++peer) {
    if (peer == rank_) own_out = at(op_.out.data, out);
    if (peer != rank_) recv(group, at(op_.out.data, out), from[peer] * width_, peer);
    out += from[peer] * width_;
  }
  if (own) copy(own_out, own, to[rank_] * width_);
}

void Steps::move() {
  const std::vector<std::size_t> none(static_cast<std::size_t>(size_));
  auto one = none;
  switch (op_.kind) {
    case OpKind::Broadcast:
      return add_move(step(GpuStep::Nccl), NcclCall::Broadcast, op_.in.data, op_.out.data,
                      op_.out.bytes(), op_.root);
    case OpKind::AllGather:
      return all_gather();
    case OpKind::Gather:
      one[op_.root] = op_.in.count;
      return exchange(one, rank_ == op_.root ? pieces() : none);
    case OpKind::Scatter:
      one[op_.root] = op_.out.count;
      return exchange(rank_ == op_.root ? pieces() : none, one);
    default:
      return exchange(pieces(), op_.recv_counts.empty() ? pieces() : op_.recv_counts);
  }
}

}  // namespace

std::string_view gpu_algorithm(const Operation& operation, bool native, bool reproducible) {
  const bool exact = !kernel::can_divide(operation.dtype);  // integers: the same bits in any order
  // NCCL's Min and Max of floats lose a NaN, so only a call or job that names kNative gets them.
  const bool loses_nan = operation.op == ReduceOp::Min || operation.op == ReduceOp::Max;
  const bool any_order = exact || (!reproducible && !loses_nan);
  return reduces(operation.kind) && (native || any_order) ? kNative : kFixedTree;
}

bool needs_fold(const Operation& operation, const GpuPlace& place, int name) {
  if (!reduces(operation.kind)) return false;
  if (place.size == 1) return false;
  if (operation.algorithm == kNative) return place.plan.most_terms > 1;
  const std::size_t terms = all_terms(place.plan);
  if (terms <= kMostOperands) return true;
  throw ConfigError(
      std::to_string(terms) + " terms are to be added, the GPU's kernel takes " +
          std::to_string(kMostOperands),
      {.rank = name,
       .operation = std::string(name_of(operation.kind)),
       .advice =
           "Use comm.algorithm nccl-native with train.reproducible = false, or fewer ranks."});
}

std::size_t scratch_bytes(const Operation& operation, const GpuPlace& place) {
  if (!reduces(operation.kind) || operation.algorithm == kNative || place.size == 1) return 0;
  const std::size_t width = size_of(operation.dtype), terms = all_terms(place.plan);
  const auto ranks = static_cast<std::size_t>(place.size);
  if (operation.kind == OpKind::ReduceScatter) {
    const std::size_t longest =
        operation.counts.empty()
            ? operation.count / ranks
            : *std::max_element(operation.counts.begin(), operation.counts.end());
    return terms * width * std::min(longest, round_of(longest, terms, 1, width));
  }
  // The terms of a slice and their fold, or of the remainder, which may be the whole round.
  const std::size_t round =
      std::min(operation.count, round_of(operation.count, terms, place.size, width));
  const std::size_t slice = slice_of(round, terms, place.size, width);
  return (terms + 1) * width * std::max(slice, std::max(round - slice * ranks, ranks));
}

std::vector<GpuStep> steps_of(const Operation& operation, const GpuPlace& place,
                              std::byte* scratch) {
  Steps steps(operation, place, scratch);
  if (place.size == 1) {
    steps.alone();
  } else if (!reduces(operation.kind)) {
    steps.move();
  } else {
    operation.algorithm == kNative ? steps.native() : steps.fixed_tree();
  }
  return steps.take();
}

NcclCall message_of(const Operation& operation, int peer) {
  const bool sends = operation.kind == OpKind::Send;
  return {.kind = sends ? NcclCall::Send : NcclCall::Recv,
          .in = operation.in.data,
          .out = operation.out.data,
          .count = sends ? operation.in.bytes() : operation.out.bytes(),
          .type = kNcclUint8,
          .peer = peer};
}

}  // namespace trireme::inline v0::comm::nccl
