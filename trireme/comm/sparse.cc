#include "trireme/comm/collectives.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <memory>
#include <numeric>
#include <string>
#include <utility>

#include "trireme/base/error.h"
#include "trireme/comm/calls/call_checks.h"
#include "trireme/comm/calls/operation.h"
#include "trireme/comm/choice/selection.h"
#include "trireme/comm/engine.h"
#include "trireme/kernel/reduce.h"
#include "trireme/kernel/tree_sum.h"

namespace trireme::inline v0 {
namespace comm {
namespace {

// Appends row `position` of `from` to `to`, or adds it to the last row if that has the same index.
void append(SparseRows& to, const SparseRows& from, std::size_t position) {
  const std::size_t bytes = from.row_bytes();
  const std::byte* row = from.values.data() + position * bytes;
  if (!to.indices.empty() && to.indices.back() == from.indices[position]) {
    std::byte* last = to.values.data() + to.values.size() - bytes;
    return kernel::combine(kernel::Combine::Sum, to.dtype, last, row, last, to.width);
  }
  to.indices.push_back(from.indices[position]);
  to.values.insert(to.values.end(), row, row + bytes);
}

SparseRows like(const SparseRows& rows) {
  return {.width = rows.width, .num_rows = rows.num_rows, .dtype = rows.dtype};
}

// Converts between a 16-bit type and fp32 (in which it is accumulated) by adding +0.
SparseRows with_type(const SparseRows& rows, DType dtype) {
  if (rows.dtype == dtype) return rows;
  SparseRows other = like(rows);
  other.dtype = dtype;
  other.indices = rows.indices;
  const bool widens = dtype == DType::F32;
  const DType narrow = widens ? rows.dtype : dtype;
  const std::size_t count = rows.indices.size() * rows.width;
  other.values.resize(count * size_of(dtype));
  const std::vector<std::byte> zeros(count * sizeof(float));
  kernel::combine_wide(kernel::Combine::Sum, narrow, rows.values.data(), !widens, zeros.data(),
                       !widens, other.values.data(), widens, count);
  return other;
}

DType type_of_sums(DType dtype) {
  return kernel::accumulates_wide(kernel::Combine::Sum, dtype) ? DType::F32 : dtype;
}

// The rank's leaf: indices ascending, repeated rows added in the order of their positions, no -0.
SparseRows coalesced(const SparseRows& rows) {
  std::vector<std::size_t> order(rows.indices.size());
  std::iota(order.begin(), order.end(), std::size_t(0));
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return rows.indices[a] < rows.indices[b]; });
  const SparseRows wide = with_type(rows, type_of_sums(rows.dtype));
  SparseRows sums = like(wide);
  for (const std::size_t position : order) append(sums, wide, position);
  SparseRows leaf = with_type(sums, rows.dtype);
  const std::vector<std::byte> zeros(leaf.values.size());  // -0 + 0 is +0
  kernel::combine(kernel::Combine::Sum, leaf.dtype, leaf.values.data(), zeros.data(),
                  leaf.values.data(), leaf.indices.size() * leaf.width);
  return leaf;
}

SparseRows merged(const SparseRows& left, const SparseRows& right) {
  SparseRows sum = like(left);
  std::size_t l = 0, r = 0;
  while (l < left.indices.size() || r < right.indices.size()) {
    const bool take_left = r == right.indices.size() ||
                           (l < left.indices.size() && left.indices[l] <= right.indices[r]);
    take_left ? append(sum, left, l++) : append(sum, right, r++);
  }
  return sum;
}

SparseRows sum_of_range(const std::vector<SparseRows>& leaves, kernel::LeafRange node) {
  if (node.count == 1) return leaves[node.first];
  const std::uint32_t half = node.count / 2;
  return merged(sum_of_range(leaves, {node.first, half}),
                sum_of_range(leaves, {node.first + half, node.count - half}));
}

// Steps: gather each rank's number of rows; gather the indices; gather or reduce the rows.
class SparseCall {
 public:
  using Algorithm = std::function<std::string(std::size_t)>;
  SparseCall(SparseRows leaf, SparseRows& out, ReduceOp op, int rank, int size, SparseWay way,
             Algorithm algorithm)
      : leaf_(std::move(leaf)),
        out_(out),
        op_(op),
        rank_(rank),
        size_(size),
        way_(way),
        algorithm_(std::move(algorithm)),
        own_count_(static_cast<std::int64_t>(leaf_.indices.size())),
        count_of_(static_cast<std::size_t>(size)) {}

  bool next(Operation& operation) {
    operation.detail = detail();
    switch (step_++) {
      case 0:
        gather(operation, Buffer::of(std::span(&own_count_, 1)), Buffer::of(std::span(count_of_)),
               std::vector<std::size_t>(count_of_.size(), 1));
        return true;
      case 1:
        gather_indices(operation);
        return true;
      case 2:
        unite();
        densify() ? reduce_rows(operation) : gather_rows(operation);
        return true;
      default:
        if (!densify()) take_gathered();  // else out_ holds the result already
        return false;
    }
  }

 private:
  // The arguments that must be equal on all ranks.
  std::uint64_t detail() const {
    const std::size_t words[] = {leaf_.width, static_cast<std::size_t>(leaf_.num_rows),
                                 static_cast<std::size_t>(leaf_.dtype),
                                 static_cast<std::size_t>(op_), static_cast<std::size_t>(way_)};
    return hash_of(words);
  }

  void gather(Operation& operation, const Buffer& in, const Buffer& out,
              std::vector<std::size_t> counts) const {
    operation.kind = OpKind::AllGather;
    operation.dtype = in.dtype;
    operation.count = out.count;
    operation.counts = std::move(counts);
    operation.algorithm = "pairwise";
    operation.in = in;
    operation.out = out;
  }

  std::vector<std::size_t> counts(std::size_t unit) const {
    std::vector<std::size_t> counts;
    for (const std::int64_t count : count_of_) {
      counts.push_back(static_cast<std::size_t>(count) * unit);
    }
    return counts;
  }

  void gather_indices(Operation& operation) {
    indices_.resize(std::accumulate(count_of_.begin(), count_of_.end(), std::size_t(0)));
    gather(operation, Buffer::of(std::span(leaf_.indices)), Buffer::of(std::span(indices_)),
           counts(1));
  }

  void unite() {
    out_ = like(leaf_);
    out_.indices = indices_;
    std::sort(out_.indices.begin(), out_.indices.end());
    out_.indices.erase(std::unique(out_.indices.begin(), out_.indices.end()), out_.indices.end());
  }

  bool densify() const {
    if (way_ != SparseWay::Choose) return way_ == SparseWay::Dense;
    return 2 * out_.indices.size() < indices_.size();
  }

  Buffer elements(std::vector<std::byte>& values) const {
    return {values.data(), values.size() / size_of(leaf_.dtype), leaf_.dtype, {}, {}, {}};
  }

  void reduce_rows(Operation& operation) {
    out_.values.assign(out_.indices.size() * leaf_.row_bytes(), std::byte{0});
    std::size_t to = 0;
    for (std::size_t from = 0; from < leaf_.indices.size(); ++from) {
      while (out_.indices[to] != leaf_.indices[from]) ++to;
      std::memcpy(&out_.values[to * leaf_.row_bytes()], &leaf_.values[from * leaf_.row_bytes()],
                  leaf_.row_bytes());
    }
    operation.kind = OpKind::AllReduce;
    operation.op = op_;
    operation.dtype = leaf_.dtype;
    operation.out = elements(out_.values);
    operation.count = operation.out.count;
    operation.total = static_cast<std::uint32_t>(size_);
    operation.algorithm = algorithm_(operation.out.bytes());
    operation.terms = {{operation.out, static_cast<std::uint32_t>(rank_), 1}};
  }

  void gather_rows(Operation& operation) {
    rows_.resize(indices_.size() * leaf_.row_bytes());
    gather(operation, elements(leaf_.values), elements(rows_), counts(leaf_.width));
  }

  void take_gathered() {
    std::vector<SparseRows> leaves;
    std::size_t begin = 0;
    for (const std::size_t count : counts(1)) {
      SparseRows& leaf = leaves.emplace_back(like(leaf_));
      const auto end = begin + count;
      leaf.indices.assign(indices_.begin() + begin, indices_.begin() + end);
      leaf.values.assign(rows_.begin() + begin * leaf_.row_bytes(),
                         rows_.begin() + end * leaf_.row_bytes());
      begin = end;
    }
    for (SparseRows& leaf : leaves) leaf = with_type(leaf, type_of_sums(leaf.dtype));
    const SparseRows sums = sum_of_range(leaves, {0, static_cast<std::uint32_t>(size_)});
    out_ = with_type(sums, leaf_.dtype);
    if (op_ == ReduceOp::Mean) {
      kernel::divide(out_.dtype, out_.values.data(), out_.indices.size() * out_.width, size_);
    }
  }

  SparseRows leaf_;
  SparseRows& out_;
  const ReduceOp op_;
  const int rank_, size_;
  const SparseWay way_;
  const Algorithm algorithm_;
  std::int64_t own_count_;
  std::vector<std::int64_t> count_of_, indices_;  // of all ranks
  std::vector<std::byte> rows_;
  int step_ = 0;
};

void check(const CallChecks& checks, const SparseRows& in, ReduceOp op) {
  const auto require = [&](bool condition, const std::string& what) {
    checks.require(condition, "sparse_all_reduce", what);
  };
  require(op == ReduceOp::Sum || op == ReduceOp::Mean,
          "sparse_all_reduce supports Sum and Mean, not " + std::string(comm::name_of(op)));
  checks.reducible(in.dtype, op, "sparse_all_reduce");
  require(in.width > 0, "`width` is 0; a row needs at least one element");
  require(in.values.size() == in.indices.size() * in.row_bytes(),
          std::to_string(in.values.size()) + " bytes of values, must be " +
              std::to_string(in.indices.size()) + " rows * " + std::to_string(in.width) + " of " +
              std::string(trireme::name_of(in.dtype)) + " = " +
              std::to_string(in.indices.size() * in.row_bytes()));
  for (const std::int64_t index : in.indices) {
    checks.require(index >= 0 && index < in.num_rows, "sparse_all_reduce", [&] {
      return "index " + std::to_string(index) + " is outside of the matrix, which has " +
             std::to_string(in.num_rows) + " rows";
    });
  }
}

}  // namespace

Work Calls::sparse_all_reduce(const SparseRows& in, SparseRows& out, ReduceOp op,
                              const SparseOptions& options) {
  check(*checks_, in, op);
  const auto algorithm = [selection = selection_, wanted = std::string(options.op.algorithm), op,
                          dtype = in.dtype,
                          ranks = static_cast<std::uint32_t>(size_)](std::size_t bytes) {
    return selection->all_reduce(wanted, {op, dtype, bytes, ranks});
  };
  algorithm(0);  // refuses now what is impossible
  auto call =
      std::make_shared<SparseCall>(coalesced(in), out, op, rank_, size_, options.way, algorithm);
  return submit(first_step(OpKind::SparseAllReduce, options.op,
                           [call](Operation& operation) { return call->next(operation); }),
                options.op);
}

}  // namespace comm

Work async::sparse_all_reduce(comm::Communicator& communicator, const SparseRows& in,
                              SparseRows& out, ReduceOp op, const comm::SparseOptions& options) {
  return communicator.sparse_all_reduce(in, out, op, options);
}

SparseRows sparse_all_reduce(comm::Communicator& communicator, const SparseRows& in, ReduceOp op,
                             const comm::SparseOptions& options) {
  SparseRows out;
  async::sparse_all_reduce(communicator, in, out, op, options).wait();
  return out;
}

}  // namespace trireme::inline v0
