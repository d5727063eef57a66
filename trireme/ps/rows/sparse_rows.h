// SparseRows: some rows of a table, each once: a sum of sparse gradients (add), or copies (keep).
// In a sum a missing row counts as +0, and -0 counts as +0, so that the bits are those of dense
// gradients (docs/numerics.md, "Sparse gradients"). Not thread safe.
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

class SparseRows {
 public:
  explicit SparseRows(std::size_t width) : width_(width) {}

  std::size_t width() const noexcept { return width_; }
  std::size_t size() const noexcept { return ids_.size(); }
  bool empty() const noexcept { return ids_.empty(); }
  /// Adds rows in their order; an id may come more than once.
  void add(const RowsView& rows);
  /// Copies a row bit for bit. No effect if the row is here.
  void keep(std::int64_t id, const float* row);
  /// Null: the row is not here.
  const float* find(std::int64_t id) const noexcept;
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
