// RowCopies: what some rows of a table were at one time, bit for bit. Not thread safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "trireme/ps/rows/row_index.h"
#include "trireme/ps/rows/row_sum.h"

namespace trireme::inline v0::ps {

class RowCopies {
 public:
  explicit RowCopies(std::size_t width) : width_(width) {}

  void clear() { index_.clear(), ids_.clear(), rows_.clear(); }
  /// No effect if there is a copy of the row.
  void add(std::int64_t id, const float* row) {
    const auto next = static_cast<std::uint32_t>(ids_.size());
    if (index_.insert(id, next) != next) return;
    ids_.push_back(id);
    rows_.insert(rows_.end(), row, row + width_);
  }
  void add(const RowsView& rows) {
    for (std::size_t i = 0; i < rows.ids.size(); ++i) add(rows.ids[i], rows.rows + i * width_);
  }
  /// Null: there is none.
  const float* find(std::int64_t id) const noexcept {
    const std::uint32_t position = index_.find(id);
    return position == RowIndex::kNone ? nullptr : rows_.data() + position * width_;
  }
  RowsView view() const noexcept { return {ids_, rows_.data()}; }

 private:
  std::size_t width_;
  RowIndex index_;
  std::vector<std::int64_t> ids_;
  std::vector<float> rows_;
};

}  // namespace trireme::inline v0::ps
