#include "trireme/ps/rows/row_gradients.h"

#include <ATen/Functions.h>

#include "trireme/base/check.h"
#include "trireme/kernel/leaf_sum.h"

namespace trireme::inline v0::ps {
namespace {

std::vector<SparseRows> empty_sums(const std::vector<ServedTable>& tables) {
  std::vector<SparseRows> sums;
  for (const ServedTable& table : tables) sums.emplace_back(static_cast<std::size_t>(table.width));
  return sums;
}

}  // namespace

RowGradients::RowGradients(std::span<const ServedTable> tables)
    : tables_(tables.begin(), tables.end()), leaf_(empty_sums(tables_)) {}

void RowGradients::take(std::uint32_t table, const at::Tensor& ids, const at::Tensor& gradients) {
  TRIREME_CHECK(gradients.numel() == ids.numel() * tables_[table].width);
  taken_.push_back({table, ids.contiguous(), gradients.to(at::kFloat).contiguous()});
}

void RowGradients::begin() {
  taken_.clear();
  for (std::vector<SparseRows>& slot : slots_)
    for (SparseRows& sum : slot) sum.clear();
  refusal_.reset();
}

void RowGradients::end_micro(std::uint32_t microbatch, const parallel::LeafStep& step,
                             double weight) {
  for (SparseRows& sum : leaf_) sum.clear();
  for (const Taken& one : taken_)
    leaf_[one.table].add(
        {{one.ids.const_data_ptr<std::int64_t>(), static_cast<std::size_t>(one.ids.numel())},
         one.gradients.const_data_ptr<float>()});
  taken_.clear();
  const auto slot = static_cast<std::size_t>(step.slot);
  while (slots_.size() < slot + static_cast<std::size_t>(std::max(step.merges, 1)))
    slots_.push_back(empty_sums(tables_));
  for (std::size_t i = 0; i < tables_.size(); ++i) {
    leaf_[i].scale(weight);
    check_finite(leaf_[i], tables_[i], microbatch);
    for (int open = step.merges; open > 0; --open) {  // the youngest first
      SparseRows& left = slots_[slot + static_cast<std::size_t>(open - 1)][i];
      left.add(leaf_[i].view());
      std::swap(left, leaf_[i]);
      left.clear();
    }
    std::swap(slots_[slot][i], leaf_[i]);
  }
}

void RowGradients::check_finite(const SparseRows& leaf, const ServedTable& table,
                                std::uint32_t microbatch) {
  const RowsView rows = leaf.view();
  if (refusal_ || kernel::all_finite(rows.rows, DType::F32, rows.ids.size() * leaf.width())) return;
  std::size_t row = 0;
  while (kernel::all_finite(rows.rows + row * leaf.width(), DType::F32, leaf.width())) ++row;
  refusal_ = "the gradient of row " + std::to_string(rows.ids[row]) + " of " + table.name +
             " is not finite in micro-batch " + std::to_string(microbatch);
}

std::vector<std::vector<RowsView>> RowGradients::terms(std::size_t terms) const {
  std::vector<std::vector<RowsView>> views(terms, std::vector<RowsView>(tables_.size()));
  for (std::size_t term = 0; term < terms && term < slots_.size(); ++term)
    for (std::size_t i = 0; i < tables_.size(); ++i) views[term][i] = slots_[term][i].view();
  return views;
}

std::vector<double> RowGradients::squares() const {
  std::vector<double> squares;
  for (std::size_t i = 0; i < tables_.size(); ++i)
    squares.push_back(slots_.empty() ? 0 : slots_[0][i].squares().value());
  return squares;
}

void RowGradients::scale(double factor) {
  for (std::vector<SparseRows>& slot : slots_)
    for (SparseRows& sum : slot) sum.scale(factor);
}

}  // namespace trireme::inline v0::ps
