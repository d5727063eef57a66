// RowSum: a sum of sparse gradients: some rows of a table, each once. A row that an operand does not have
// counts as +0, and -0 counts as +0, so that the bits are those of dense gradients (docs/numerics.md,
// "Sparse gradients"). Not thread safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "trireme/ps/rows/row_index.h"
#include "trireme/ps/server/exact_sum.h"

namespace trireme::inline v0::ps {

/// Rows as they lie in memory: ids, and one row of a table's width for each.
struct RowsView {
  std::span<const std::int64_t> ids;
  const float* rows = nullptr;
};

class RowSum {
 public:
  explicit RowSum(std::size_t width) : width_(width) {}

  std::size_t width() const noexcept { return width_; }
  std::size_t size() const noexcept { return ids_.size(); }
  bool empty() const noexcept { return ids_.empty(); }
  /// Adds rows in their order; an id may come more than once.
  void add(const RowsView& rows);
  void scale(double factor);
  void clear();
  /// The squares of all elements; those of a row are added in fp64, in their order.
  ExactSum squares() const;
  /// In the order in which the ids came first.
  RowsView view() const noexcept { return {ids_, rows_.data()}; }

 private:
  std::size_t width_;
  RowIndex index_;
  std::vector<std::int64_t> ids_;
  std::vector<float> rows_;
};

}  // namespace trireme::inline v0::ps
