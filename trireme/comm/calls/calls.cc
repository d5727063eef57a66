#include "trireme/comm/communicator.h"

#include <algorithm>
#include <numeric>
#include <utility>
#include <vector>

#include "trireme/comm/calls/call_checks.h"
#include "trireme/comm/calls/fused_call.h"
#include "trireme/comm/calls/operation.h"
#include "trireme/comm/choice/selection.h"
#include "trireme/comm/device/place.h"
#include "trireme/comm/engine.h"

namespace trireme::inline v0::comm {
namespace {

// In larger broadcasts the bytes cost more than the rounds.
constexpr std::size_t kChainBytes = 1u << 20;
// Up to this size the rounds of a reduce or an all_to_all cost more than the bytes.
constexpr std::size_t kFewRoundsBytes = 64u << 10;

std::string text_of(std::size_t number) { return std::to_string(number); }

// "3 elements of F32".
std::string text_of(const Buffer& buffer) {
  return text_of(buffer.count) + " elements of " + std::string(trireme::name_of(buffer.dtype));
}

std::size_t sum_of(std::span<const std::size_t> counts) {
  return std::accumulate(counts.begin(), counts.end(), std::size_t(0));
}

// "3 + 0 + 5 = 8".
std::string sum_text(std::span<const std::size_t> counts) {
  std::string sum;
  for (std::size_t i = 0; i < counts.size(); ++i) {
    if (i == 8) {
      sum += " + ...";
      break;
    }
    sum += (i == 0 ? "" : " + ") + text_of(counts[i]);
  }
  return sum + " = " + text_of(sum_of(counts));
}

std::vector<std::size_t> equal_counts(int size, std::size_t count) {
  return std::vector<std::size_t>(static_cast<std::size_t>(size), count);
}

}  // namespace

Calls::Calls(std::shared_ptr<Engine> engine)
    : engine_(std::move(engine)),
      selection_(std::make_shared<const Selection>(*engine_)),
      rank_(engine_->facts.rank),
      size_(engine_->facts.size),
      checks_(std::make_unique<const CallChecks>(engine_->facts.world_rank(), size_)) {}

Calls::~Calls() = default;

Work Calls::submit(Operation&& operation, const OpOptions& options) {
  place(operation, *engine_, options.algorithm);
  return engine_->submit(std::move(operation), options.deadline);
}

// Runs a collective that has one usual algorithm.
Work Calls::run(Operation&& operation, Buffer in, Buffer out, std::string_view usual,
                const OpOptions& options) {
  operation.algorithm = selection_->pick(operation.kind, options.algorithm, usual);
  operation.may_be_direct = selection_->may_be_direct(operation.kind, options.algorithm);
  operation.in = std::move(in);
  operation.out = std::move(out);
  return submit(std::move(operation), options);
}

Work Calls::all_reduce(Buffer inout, ReduceOp op, const OpOptions& options) {
  checks_->reducible(inout.dtype, op, "all_reduce");
  Operation operation = operation_of(OpKind::AllReduce, inout, inout.count, options);
  operation.op = op;
  operation.total = static_cast<std::uint32_t>(size_);
  operation.algorithm =
      selection_->all_reduce(options.algorithm, {op, inout.dtype, inout.bytes(), operation.total});
  operation.terms.push_back({inout, static_cast<std::uint32_t>(rank_), 1});
  operation.out = std::move(inout);
  return submit(std::move(operation), options);
}

Work Calls::all_reduce(std::span<const Term> terms, std::uint32_t total, Buffer out,
                       const OpOptions& options) {
  return all_reduce(terms, kernel::LeafShares(total), std::move(out), options);
}

Work Calls::all_reduce(std::span<const Term> terms, const kernel::LeafShares& leaves, Buffer out,
                       const OpOptions& options) {
  const std::uint32_t total = leaves.total;
  checks_->reducible(out.dtype, ReduceOp::Sum, "all_reduce");
  checks_->require(total > 0, "all_reduce", "`total` is 0; a sum needs at least one leaf");
  const auto nodes = kernel::maximal_nodes(leaves.of(size_, rank_), total);
  checks_->require(terms.size() == nodes.size(), "all_reduce", [&] {
    return text_of(terms.size()) + " terms were given, but this rank's share of " + text_of(total) +
           " leaves has " + text_of(nodes.size());
  });
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    checks_->require(terms[i].first == nodes[i].first && terms[i].count == nodes[i].count,
                     "all_reduce", [&] {
                       return "term " + text_of(i) + " is [" + text_of(terms[i].first) + ", +" +
                              text_of(terms[i].count) + "), must be [" + text_of(nodes[i].first) +
                              ", +" + text_of(nodes[i].count) + ")";
                     });
    checks_->require(terms[i].value.count == out.count && terms[i].value.dtype == out.dtype,
                     "all_reduce",
                     [&] { return "term " + text_of(i) + " differs from `out` in count or type"; });
  }
  Operation operation = operation_of(OpKind::AllReduce, out, out.count, options);
  operation.total = total;
  operation.shares = leaves.weights;
  operation.algorithm =
      selection_->all_reduce(options.algorithm, {ReduceOp::Sum, out.dtype, out.bytes(), total});
  operation.terms.assign(terms.begin(), terms.end());
  operation.out = std::move(out);
  return submit(std::move(operation), options);
}

Work Calls::broadcast(Buffer inout, int root, const OpOptions& options) {
  checks_->root(root, "broadcast");
  Operation operation = operation_of(OpKind::Broadcast, inout, inout.count, options);
  const bool large = inout.bytes() > kChainBytes && size_ > 2;
  operation.root = root;
  return run(std::move(operation), inout, std::move(inout), large ? "chain" : "binomial", options);
}

Work Calls::all_gather(Buffer in, Buffer out, const OpOptions& options) {
  const std::vector<std::size_t> counts = equal_counts(size_, in.count);
  return all_gather_v(std::move(in), std::move(out), counts, options);
}

Work Calls::all_gather_v(Buffer in, Buffer out, std::span<const std::size_t> counts,
                         const OpOptions& options) {
  checks_->counts(counts, "all_gather");
  const std::size_t sum = sum_of(counts);
  checks_->require(in.count == counts[rank_], "all_gather", [&] {
    return "in holds " + text_of(in.count) + " elements, counts says " + text_of(counts[rank_]);
  });
  checks_->require(out.count == sum && out.dtype == in.dtype, "all_gather", [&] {
    return "out holds " + text_of(out.count) + " elements, must be " + text_of(sum) +
           " of in's type";
  });
  Operation operation = operation_of(OpKind::AllGather, out, sum, options);
  operation.counts.assign(counts.begin(), counts.end());
  return run(std::move(operation), std::move(in), std::move(out), "pairwise", options);
}

Work Calls::reduce_scatter(Buffer in, Buffer out, ReduceOp op, const OpOptions& options) {
  checks_->reducible(in.dtype, op, "reduce_scatter");
  checks_->require(in.dtype == out.dtype && in.count == out.count * static_cast<std::size_t>(size_),
                   "reduce_scatter", [&] {
                     return "in holds " + text_of(in.count) + " elements, out " +
                            text_of(out.count) + ", the group " + std::to_string(size_) + " ranks";
                   });
  Operation operation = operation_of(OpKind::ReduceScatter, in, in.count, options);
  operation.op = op;
  operation.total = static_cast<std::uint32_t>(size_);
  return run(std::move(operation), std::move(in), std::move(out), "pairwise", options);
}

Work Calls::barrier(const OpOptions& options) {
  return engine_->submit(operation_of(OpKind::Barrier, {}, 0, options), options.deadline);
}

Work Calls::send(Buffer buffer, int peer, std::uint32_t tag, const OpOptions& options) {
  Operation operation = message(OpKind::Send, buffer, peer, tag, options);
  operation.in = std::move(buffer);
  return submit(std::move(operation), options);
}

Work Calls::recv(Buffer buffer, int peer, std::uint32_t tag, const OpOptions& options) {
  Operation operation = message(OpKind::Recv, buffer, peer, tag, options);
  operation.out = std::move(buffer);
  return submit(std::move(operation), options);
}

Operation Calls::message(OpKind kind, const Buffer& buffer, int peer, std::uint32_t tag,
                         const OpOptions& options) const {
  checks_->require(peer >= 0 && peer < size_ && peer != rank_, name_of(kind), [&] {
    return "the peer is rank " + std::to_string(peer) + "; it must be another rank of 0 to " +
           std::to_string(size_ - 1);
  });
  Operation operation = operation_of(kind, buffer, buffer.count, options);
  operation.root = peer;
  operation.user_tag = tag;
  return operation;
}

Work Calls::reduce(Buffer in, Buffer out, ReduceOp op, int root, const OpOptions& options) {
  checks_->reducible(in.dtype, op, "reduce");
  checks_->root(root, "reduce");
  if (rank_ != root) {
    out = {};
  } else {
    checks_->require(out.count == in.count && out.dtype == in.dtype, "reduce",
                     [&] { return "out holds " + text_of(out) + ", in " + text_of(in); });
  }
  Operation operation = operation_of(OpKind::Reduce, in, in.count, options);
  const bool small = in.bytes() <= kFewRoundsBytes || size_ == 2;
  operation.op = op;
  operation.root = root;
  operation.total = static_cast<std::uint32_t>(size_);
  return run(std::move(operation), std::move(in), std::move(out), small ? "tree" : "pairwise",
             options);
}

Work Calls::reduce_scatter_v(Buffer in, Buffer out, std::span<const std::size_t> counts,
                             ReduceOp op, const OpOptions& options) {
  checks_->reducible(in.dtype, op, "reduce_scatter");
  checks_->counts(counts, "reduce_scatter");
  checks_->require(in.count == sum_of(counts), "reduce_scatter",
                   [&] { return "in holds " + text_of(in) + ", must be " + sum_text(counts); });
  checks_->require(out.count == counts[rank_] && out.dtype == in.dtype, "reduce_scatter", [&] {
    return "out holds " + text_of(out) + ", must hold this rank's count of " +
           text_of(counts[rank_]) + " of in's type";
  });
  Operation operation = operation_of(OpKind::ReduceScatter, in, in.count, options);
  operation.op = op;
  operation.total = static_cast<std::uint32_t>(size_);
  operation.counts.assign(counts.begin(), counts.end());
  return run(std::move(operation), std::move(in), std::move(out), "pairwise", options);
}

Work Calls::gather(Buffer in, Buffer out, int root, const OpOptions& options) {
  return gather_v(in, std::move(out), equal_counts(size_, in.count), root, options);
}

Work Calls::gather_v(Buffer in, Buffer out, std::span<const std::size_t> counts, int root,
                     const OpOptions& options) {
  checks_->root(root, "gather");
  checks_->counts(counts, "gather");
  checks_->require(in.count == counts[rank_], "gather", [&] {
    return "in holds " + text_of(in) + ", this rank's count is " + text_of(counts[rank_]);
  });
  if (rank_ != root) {
    out = {};
  } else {
    checks_->require(out.count == sum_of(counts) && out.dtype == in.dtype, "gather", [&] {
      return "out holds " + text_of(out) + ", must be " + sum_text(counts) + " of in's type";
    });
  }
  Operation operation = operation_of(OpKind::Gather, in, sum_of(counts), options);
  operation.root = root;
  operation.counts.assign(counts.begin(), counts.end());
  return run(std::move(operation), std::move(in), std::move(out), "central", options);
}

Work Calls::scatter(Buffer in, Buffer out, int root, const OpOptions& options) {
  const std::size_t count = out.count;
  return scatter_v(std::move(in), std::move(out), equal_counts(size_, count), root, options);
}

Work Calls::scatter_v(Buffer in, Buffer out, std::span<const std::size_t> counts, int root,
                      const OpOptions& options) {
  checks_->root(root, "scatter");
  checks_->counts(counts, "scatter");
  checks_->require(out.count == counts[rank_], "scatter", [&] {
    return "out holds " + text_of(out) + ", this rank's count is " + text_of(counts[rank_]);
  });
  if (rank_ != root) {
    in = {};
  } else {
    checks_->require(in.count == sum_of(counts) && in.dtype == out.dtype, "scatter", [&] {
      return "in holds " + text_of(in) + ", must be " + sum_text(counts) + " of out's type";
    });
  }
  Operation operation = operation_of(OpKind::Scatter, out, sum_of(counts), options);
  operation.root = root;
  operation.counts.assign(counts.begin(), counts.end());
  return run(std::move(operation), std::move(in), std::move(out), "central", options);
}

Work Calls::all_to_all(Buffer in, Buffer out, const OpOptions& options) {
  const auto ranks = static_cast<std::size_t>(size_);
  checks_->require(in.count == out.count && in.dtype == out.dtype, "all_to_all",
                   [&] { return "in holds " + text_of(in) + ", out " + text_of(out); });
  checks_->require(in.count % ranks == 0, "all_to_all", [&] {
    return text_of(in.count) + " elements / " + text_of(ranks) + " ranks leaves " +
           text_of(in.count % ranks);
  });
  Operation operation = operation_of(OpKind::AllToAll, in, in.count, options);
  const bool small = in.bytes() <= kFewRoundsBytes;
  return run(std::move(operation), std::move(in), std::move(out), small ? "naive" : "pairwise",
             options);
}

Work Calls::all_to_all_v(Buffer in, Buffer out, std::span<const std::size_t> send_counts,
                         std::span<const std::size_t> recv_counts, const OpOptions& options) {
  checks_->counts(send_counts, "all_to_all");
  checks_->counts(recv_counts, "all_to_all");
  checks_->require(in.count == sum_of(send_counts), "all_to_all", [&] {
    return "in holds " + text_of(in) + ", must be " + sum_text(send_counts);
  });
  checks_->require(out.count == sum_of(recv_counts) && out.dtype == in.dtype, "all_to_all", [&] {
    return "out holds " + text_of(out) + ", must be " + sum_text(recv_counts) + " of in's type";
  });
  checks_->require(send_counts[rank_] == recv_counts[rank_], "all_to_all", [&] {
    return "this rank keeps " + text_of(send_counts[rank_]) + " elements, but expects " +
           text_of(recv_counts[rank_]) + " of itself";
  });
  Operation operation = operation_of(OpKind::AllToAll, in, 0, options);
  operation.algorithm = selection_->pick(OpKind::AllToAll, options.algorithm, "pairwise");
  operation.may_be_direct = selection_->may_be_direct(operation.kind, options.algorithm);
  operation.counts.assign(send_counts.begin(), send_counts.end());
  operation.recv_counts.assign(recv_counts.begin(), recv_counts.end());
  operation.in = std::move(in);
  operation.out = std::move(out);
  place(operation, *engine_, options.algorithm);
  return engine_->submit(counts_before(std::move(operation), engine_->facts), options.deadline);
}

Work Calls::all_reduce_many(std::span<const Buffer> buffers, ReduceOp op,
                            const OpOptions& options) {
  for (const Buffer& buffer : buffers) checks_->reducible(buffer.dtype, op, "all_reduce_many");
  const auto on_device = [](const Buffer& one) { return one.device.kind != DeviceKind::Cpu; };
  if (std::any_of(buffers.begin(), buffers.end(), on_device)) {
    std::vector<Work> works;
    for (const Buffer& buffer : buffers) works.push_back(all_reduce(buffer, op, options));
    return Work::all(works);
  }
  const auto algorithm = [&](std::size_t bytes, DType dtype) {
    return selection_->all_reduce(options.algorithm,
                                  {op, dtype, bytes, static_cast<std::uint32_t>(size_)});
  };
  auto operation = fused_call(buffers, op, rank_, size_, options, algorithm);
  return operation ? submit(std::move(*operation), options) : Work();
}

}  // namespace trireme::inline v0::comm
