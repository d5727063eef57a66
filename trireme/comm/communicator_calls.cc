// Communicator's collectives with a root or with one piece per rank, and those of several steps.
#include <algorithm>
#include <cstring>
#include <numeric>
#include <utility>

#include "trireme/base/error.h"
#include "trireme/comm/choice/selection.h"
#include "trireme/comm/communicator.h"
#include "trireme/comm/device_backend.h"
#include "trireme/comm/engine.h"
#include "trireme/comm/fused_call.h"
#include "trireme/comm/operation.h"
#include "trireme/kernel/reduce.h"

namespace trireme::inline v0::comm {
namespace {

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

void Communicator::require_reducible(DType dtype, ReduceOp op, std::string_view operation) const {
  require(kernel::can_combine(dtype), operation,
          [&] { return std::string(trireme::name_of(dtype)) + " cannot be reduced"; });
  require(op != ReduceOp::Mean || kernel::can_divide(dtype), operation,
          "the Mean of integers is not defined");
}

void Communicator::require_counts(std::span<const std::size_t> counts,
                                  std::string_view operation) const {
  require(counts.size() == static_cast<std::size_t>(size()), operation, [&] {
    return text_of(counts.size()) + " counts given for " + std::to_string(size()) + " ranks";
  });
}

void Communicator::require_root(int root, std::string_view operation) const {
  require(root >= 0 && root < size(), operation, [&] {
    return "root " + std::to_string(root) + " of " + std::to_string(size()) + " ranks";
  });
}

Work Communicator::reduce(Buffer in, Buffer out, ReduceOp op, int root, const OpOptions& options) {
  require_reducible(in.dtype, op, "reduce");
  require_root(root, "reduce");
  if (rank() != root) {
    out = {};
  } else {
    require(out.count == in.count && out.dtype == in.dtype, "reduce",
            [&] { return "out holds " + text_of(out) + ", in " + text_of(in); });
  }
  Operation operation = operation_of(OpKind::Reduce, in, in.count, options);
  const bool small = in.bytes() <= kFewRoundsBytes || size() == 2;
  operation.op = op;
  operation.root = root;
  operation.total = static_cast<std::uint32_t>(size());
  return run(std::move(operation), std::move(in), std::move(out), small ? "tree" : "pairwise",
             options);
}

Work Communicator::reduce_scatter_v(Buffer in, Buffer out, std::span<const std::size_t> counts,
                                    ReduceOp op, const OpOptions& options) {
  require_reducible(in.dtype, op, "reduce_scatter");
  require_counts(counts, "reduce_scatter");
  require(in.count == sum_of(counts), "reduce_scatter",
          [&] { return "in holds " + text_of(in) + ", must be " + sum_text(counts); });
  require(out.count == counts[rank()] && out.dtype == in.dtype, "reduce_scatter", [&] {
    return "out holds " + text_of(out) + ", must be rank " + std::to_string(rank()) + "'s " +
           text_of(counts[rank()]) + " of in's type";
  });
  Operation operation = operation_of(OpKind::ReduceScatter, in, in.count, options);
  operation.op = op;
  operation.total = static_cast<std::uint32_t>(size());
  operation.counts.assign(counts.begin(), counts.end());
  return run(std::move(operation), std::move(in), std::move(out), "pairwise", options);
}

Work Communicator::gather(Buffer in, Buffer out, int root, const OpOptions& options) {
  return gather_v(in, std::move(out), equal_counts(size(), in.count), root, options);
}

Work Communicator::gather_v(Buffer in, Buffer out, std::span<const std::size_t> counts, int root,
                            const OpOptions& options) {
  require_root(root, "gather");
  require_counts(counts, "gather");
  require(in.count == counts[rank()], "gather", [&] {
    return "in holds " + text_of(in) + ", rank " + std::to_string(rank()) + "'s count is " +
           text_of(counts[rank()]);
  });
  if (rank() != root) {
    out = {};
  } else {
    require(out.count == sum_of(counts) && out.dtype == in.dtype, "gather", [&] {
      return "out holds " + text_of(out) + ", must be " + sum_text(counts) + " of in's type";
    });
  }
  Operation operation = operation_of(OpKind::Gather, in, sum_of(counts), options);
  operation.root = root;
  operation.counts.assign(counts.begin(), counts.end());
  return run(std::move(operation), std::move(in), std::move(out), "central", options);
}

Work Communicator::scatter(Buffer in, Buffer out, int root, const OpOptions& options) {
  const std::size_t count = out.count;
  return scatter_v(std::move(in), std::move(out), equal_counts(size(), count), root, options);
}

Work Communicator::scatter_v(Buffer in, Buffer out, std::span<const std::size_t> counts, int root,
                             const OpOptions& options) {
  require_root(root, "scatter");
  require_counts(counts, "scatter");
  require(out.count == counts[rank()], "scatter", [&] {
    return "out holds " + text_of(out) + ", rank " + std::to_string(rank()) + "'s count is " +
           text_of(counts[rank()]);
  });
  if (rank() != root) {
    in = {};
  } else {
    require(in.count == sum_of(counts) && in.dtype == out.dtype, "scatter", [&] {
      return "in holds " + text_of(in) + ", must be " + sum_text(counts) + " of out's type";
    });
  }
  Operation operation = operation_of(OpKind::Scatter, out, sum_of(counts), options);
  operation.root = root;
  operation.counts.assign(counts.begin(), counts.end());
  return run(std::move(operation), std::move(in), std::move(out), "central", options);
}

Work Communicator::all_to_all(Buffer in, Buffer out, const OpOptions& options) {
  const auto ranks = static_cast<std::size_t>(size());
  require(in.count == out.count && in.dtype == out.dtype, "all_to_all",
          [&] { return "in holds " + text_of(in) + ", out " + text_of(out); });
  require(in.count % ranks == 0, "all_to_all", [&] {
    return text_of(in.count) + " elements / " + text_of(ranks) + " ranks leaves " +
           text_of(in.count % ranks);
  });
  Operation operation = operation_of(OpKind::AllToAll, in, in.count, options);
  const bool small = in.bytes() <= kFewRoundsBytes;
  return run(std::move(operation), std::move(in), std::move(out), small ? "naive" : "pairwise",
             options);
}

Work Communicator::all_to_all_v(Buffer in, Buffer out, std::span<const std::size_t> send_counts,
                                std::span<const std::size_t> recv_counts,
                                const OpOptions& options) {
  require_counts(send_counts, "all_to_all");
  require_counts(recv_counts, "all_to_all");
  require(in.count == sum_of(send_counts), "all_to_all",
          [&] { return "in holds " + text_of(in) + ", must be " + sum_text(send_counts); });
  require(out.count == sum_of(recv_counts) && out.dtype == in.dtype, "all_to_all", [&] {
    return "out holds " + text_of(out) + ", must be " + sum_text(recv_counts) + " of in's type";
  });
  require(send_counts[rank()] == recv_counts[rank()], "all_to_all", [&] {
    return "rank " + std::to_string(rank()) + " keeps " + text_of(send_counts[rank()]) +
           " elements, but expects " + text_of(recv_counts[rank()]) + " of itself";
  });
  Operation operation = operation_of(OpKind::AllToAll, in, 0, options);
  operation.algorithm = selection_->pick(OpKind::AllToAll, options.algorithm, "pairwise");
  operation.may_be_direct = selection_->may_be_direct(operation.kind, options.algorithm);
  operation.counts.assign(send_counts.begin(), send_counts.end());
  operation.recv_counts.assign(recv_counts.begin(), recv_counts.end());
  operation.in = std::move(in);
  operation.out = std::move(out);
  place(operation, *engine_, options.algorithm);
  std::vector<int> names;
  for (int peer = 0; peer < size(); ++peer) names.push_back(engine_->world_rank(peer));
  return engine_->submit(counts_before(std::move(operation), std::move(names)), options.deadline);
}

Work Communicator::all_reduce_many(std::span<const Buffer> buffers, ReduceOp op,
                                   const OpOptions& options) {
  for (const Buffer& buffer : buffers) require_reducible(buffer.dtype, op, "all_reduce_many");
  const auto on_device = [](const Buffer& one) { return one.device.kind != DeviceKind::Cpu; };
  if (std::any_of(buffers.begin(), buffers.end(), on_device)) {
    std::vector<Work> works;
    for (const Buffer& buffer : buffers) works.push_back(all_reduce(buffer, op, options));
    return Work::all(works);
  }
  const auto algorithm = [&](std::size_t bytes, DType dtype) {
    return selection_->all_reduce(options.algorithm,
                                  {op, dtype, bytes, static_cast<std::uint32_t>(size())});
  };
  auto operation = fused_call(buffers, op, rank(), size(), options, algorithm);
  return operation ? engine_->submit(std::move(*operation), options.deadline) : Work();
}

}  // namespace trireme::inline v0::comm
