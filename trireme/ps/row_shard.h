// RowShard: what one server has of all embedding tables, and how gradients change it: the counterpart of
// shard.h for rows. It knows no worker and no network. Not thread safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "trireme/kernel/reduce.h"
#include "trireme/ps/row_sum.h"
#include "trireme/ps/row_table.h"

namespace trireme::inline v0::ps {

class RowShard {
 public:
  RowShard(std::span<const ServedTable> tables, int server, int servers,
           const OptimizerOptions& optimizer);

  std::size_t num_tables() const noexcept { return tables_.size(); }
  const RowTable& table(std::size_t number) const { return tables_[number]; }
  const std::vector<ServedTable>& tables() const noexcept { return served_; }

  /// The weights of these ids of each table, one after the other.
  void read(std::span<const RowsView> ids, std::vector<float>& out) const;
  /// MismatchError if a row is not one of this server's.
  void check(std::span<const RowsView> rows) const;
  /// Names the first row of these (of each table) that holds an infinity or a NaN.
  std::optional<std::string> first_not_finite(std::span<const RowsView> rows) const;

  /// One update by rows of each table.
  void update(std::span<const RowsView> rows, double rate, double scale);
  /// Adds terms, each of which has rows of each table, by `steps` (kernel/reduce.h).
  void fold(std::span<const std::vector<RowsView>> terms, std::span<const kernel::FoldStep> steps);
  /// Of the folded sum: the sums of squares of each table, and what is not finite.
  std::vector<ExactSum> squares() const;
  std::optional<std::string> first_not_finite() const { return first_not_finite(views()); }
  void apply(double rate, double scale) { update(views(), rate, scale); }
  /// That sum, of each table; for another copy of the shard.
  std::vector<RowSum>& sums() noexcept { return sums_; }

  std::vector<SavedTable> save() const;
  /// The reverse. MismatchError if they are of other tables, or rows are here already.
  void load(std::span<const SavedTable> saved);

 private:
  std::vector<RowsView> views() const;

  const std::vector<ServedTable> served_;
  const int server_, servers_;
  std::deque<RowTable> tables_;
  std::vector<RowSum> sums_;  // of each table
};

}  // namespace trireme::inline v0::ps
