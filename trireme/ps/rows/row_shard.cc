#include "trireme/ps/rows/row_shard.h"

#include "trireme/base/check.h"
#include "trireme/base/error.h"
#include "trireme/kernel/leaf_sum.h"

namespace trireme::inline v0::ps {

RowShard::RowShard(std::span<const ServedTable> tables, int server, int servers,
                   const OptimizerOptions& optimizer, bool keeps_previous)
    : served_(tables.begin(), tables.end()),
      optimizer_(optimizer),
      server_(server),
      servers_(servers),
      keeps_previous_(keeps_previous),
      tables_(new_tables()) {
  for (const ServedTable& table : served_)
    sums_.emplace_back(static_cast<std::size_t>(table.width));
}

std::deque<RowTable> RowShard::new_tables() const {
  std::deque<RowTable> tables;
  for (const ServedTable& table : served_) {
    const std::int64_t most = (table.max_rows + servers_ - 1) / servers_;
    tables.emplace_back(table, most, optimizer_);
    if (keeps_previous_) tables.back().keep_previous();
  }
  return tables;
}

void RowShard::read(std::span<const RowsView> ids, bool previous, std::vector<float>& out) const {
  std::size_t floats = 0;
  for (std::size_t i = 0; i < tables_.size(); ++i) floats += ids[i].ids.size() * tables_[i].width();
  out.resize(floats);
  float* at = out.data();
  for (std::size_t i = 0; i < tables_.size(); ++i) {
    if (previous && keeps_previous_)
      tables_[i].read_previous(ids[i].ids, at);
    else
      tables_[i].read(ids[i].ids, at);
    at += ids[i].ids.size() * tables_[i].width();
  }
}

void RowShard::check(std::span<const RowsView> rows) const {
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const ServedTable& table = served_[i % served_.size()];
    for (const std::int64_t id : rows[i].ids)
      if (id < 0 || server_of_row(table, id, servers_) != server_)
        throw MismatchError("row " + std::to_string(id) + " of \"" + table.name +
                            "\" is not this server's");
  }
}

std::optional<std::string> RowShard::first_not_finite(std::span<const RowsView> rows) const {
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const ServedTable& table = served_[i % served_.size()];
    const auto width = static_cast<std::size_t>(table.width);
    if (kernel::all_finite(rows[i].rows, DType::F32, rows[i].ids.size() * width)) continue;
    for (std::size_t row = 0; row < rows[i].ids.size(); ++row)
      if (!kernel::all_finite(rows[i].rows + row * width, DType::F32, width))
        return table.name + " row " + std::to_string(rows[i].ids[row]);
  }
  return std::nullopt;
}

void RowShard::update(std::span<const RowsView> rows, double rate, double scale) {
  TRIREME_CHECK(rows.size() == tables_.size());
  for (std::size_t i = 0; i < tables_.size(); ++i)
    tables_[i].update(rows[i].ids, rows[i].rows, rate, scale);
}

// Each term of a table becomes a sum; the first one ends as the result.
void RowShard::fold(std::span<const std::vector<RowsView>> terms,
                    std::span<const kernel::FoldStep> steps) {
  for (std::size_t i = 0; i < tables_.size(); ++i) {
    sums_[i].clear();
    if (terms.empty()) continue;
    std::vector<SparseRows> more(terms.size() - 1, SparseRows(tables_[i].width()));
    const auto sum = [&](std::size_t term) -> SparseRows& {
      return term == 0 ? sums_[i] : more[term - 1];
    };
    for (std::size_t term = 0; term < terms.size(); ++term) sum(term).add(terms[term][i]);
    for (const kernel::FoldStep& step : steps) sum(step.left).add(sum(step.right).view());
  }
}

std::vector<ExactSum> RowShard::squares() const {
  std::vector<ExactSum> squares;
  for (const SparseRows& sum : sums_) squares.push_back(sum.squares());
  return squares;
}

std::vector<RowsView> RowShard::views() const {
  std::vector<RowsView> views;
  for (const SparseRows& sum : sums_) views.push_back(sum.view());
  return views;
}

std::vector<SavedTable> RowShard::save() const {
  std::vector<SavedTable> saved;
  for (const RowTable& table : tables_) saved.push_back(table.save());
  return saved;
}

void RowShard::load(std::span<const SavedTable> saved) {
  std::deque<RowTable> tables = new_tables();
  if (!saved.empty() && saved.size() != tables.size())
    throw MismatchError("it sends rows of " + std::to_string(saved.size()) + " tables");
  for (std::size_t i = 0; i < saved.size(); ++i) tables[i].load(saved[i]);
  tables_.swap(tables);
}

}  // namespace trireme::inline v0::ps
