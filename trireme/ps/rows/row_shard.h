// RowShard: one server's rows of all embedding tables, and their updates by gradients: the
// counterpart of shard.h. It knows no worker and no network. Not thread safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "trireme/kernel/reduce.h"
#include "trireme/ps/rows/row_table.h"
#include "trireme/ps/rows/sparse_rows.h"

namespace trireme::inline v0::ps {

class RowShard {
 public:
  /// `keeps_previous`: for RowTable::read_previous().
  RowShard(std::span<const ServedTable> tables, int server, int servers,
           const OptimizerOptions& optimizer, bool keeps_previous = false);

  std::size_t num_tables() const noexcept { return tables_.size(); }
  const RowTable& table(std::size_t number) const { return tables_[number]; }
  const std::vector<ServedTable>& tables() const noexcept { return served_; }

  /// The weights of these ids of each table, one after the other; `previous`: as they were before
  /// the last update, if they are kept.
  void read(std::span<const RowsView> ids, bool previous, std::vector<float>& out) const;
  /// MismatchError if a row is not one of this server's.
  void check(std::span<const RowsView> rows) const;
  /// Names the first row of these (of each table) that holds an infinity or a NaN.
  std::optional<std::string> first_not_finite(std::span<const RowsView> rows) const;

  /// One update by rows of each table.
  void update(std::span<const RowsView> rows, double rate, double scale);
  /// Adds terms, each of which has rows of each table, by `steps` (kernel/reduce.h).
  void fold(std::span<const std::vector<RowsView>> terms, std::span<const kernel::FoldStep> steps);
  /// The folded sum: the sum of squares of each table, and the first row that is not finite.
  std::vector<ExactSum> squares() const;
  std::optional<std::string> first_not_finite() const { return first_not_finite(views()); }
  void apply(double rate, double scale) { update(views(), rate, scale); }
  /// For another copy of the shard: that sum, of each table, and what a table keeps of its rows.
  std::vector<SparseRows>& sums() noexcept { return sums_; }
  SparseRows* previous(std::size_t table) noexcept { return tables_[table].previous(); }

  std::vector<SavedTable> save() const;
  /// The reverse: the saved rows, or none, replace all rows. MismatchError, with nothing changed,
  /// for other tables.
  void load(std::span<const SavedTable> saved);

 private:
  std::vector<RowsView> views() const;
  std::deque<RowTable> new_tables() const;

  const std::vector<ServedTable> served_;
  const OptimizerOptions optimizer_;
  const int server_, servers_;
  const bool keeps_previous_;
  std::deque<RowTable> tables_;
  std::vector<SparseRows> sums_;  // of each table
};

}  // namespace trireme::inline v0::ps
