#include "trireme/ps/rows/sparse_rows.h"

#include <algorithm>
#include <cmath>

namespace trireme::inline v0::ps {
namespace {

constexpr std::size_t kPrefetched = 16;

}  // namespace

void SparseRows::add(const RowsView& rows) {
  index_.reserve(size() + rows.ids.size());
  rows_.reserve((size() + rows.ids.size()) * width_);
  for (std::size_t i = 0; i < std::min(kPrefetched, rows.ids.size()); ++i)
    index_.prefetch(rows.ids[i]);
  for (std::size_t i = 0; i < rows.ids.size(); ++i) {
    if (i + kPrefetched < rows.ids.size()) index_.prefetch(rows.ids[i + kPrefetched]);
    const float* from = rows.rows + i * width_;
    const auto next = static_cast<std::uint32_t>(ids_.size());
    const std::uint32_t position = index_.insert(rows.ids[i], next);
    if (position == next) {
      ids_.push_back(rows.ids[i]);
      rows_.resize(rows_.size() + width_);  // zeros, so that -0 becomes +0
    }
    float* sum = rows_.data() + position * width_;
    for (std::size_t k = 0; k < width_; ++k) sum[k] += from[k];
  }
}

void SparseRows::keep(std::int64_t id, const float* row) {
  const auto next = static_cast<std::uint32_t>(ids_.size());
  if (index_.insert(id, next) != next) return;
  ids_.push_back(id);
  rows_.insert(rows_.end(), row, row + width_);
}

const float* SparseRows::find(std::int64_t id) const noexcept {
  const std::uint32_t position = index_.find(id);
  return position == RowIndex::kNone ? nullptr : rows_.data() + position * width_;
}

void SparseRows::scale(double factor) {
  if (factor == 1) return;
  for (float& value : rows_) value *= static_cast<float>(factor);
}

ExactSum SparseRows::squares() const {
  ExactSum sum;
  for (std::size_t row = 0; row < size(); ++row) {
    double squares = 0;
    for (std::size_t k = 0; k < width_; ++k) {
      const double value = rows_[row * width_ + k];
      squares += value * value;
    }
    if (std::isfinite(squares)) sum.add(squares);  // else the step is refused
  }
  return sum;
}

void SparseRows::clear() {
  index_.clear();
  ids_.clear();
  rows_.clear();
}

}  // namespace trireme::inline v0::ps
