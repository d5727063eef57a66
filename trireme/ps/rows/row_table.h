// RowTable: the rows of one embedding table that one server has. A row takes memory from its first
// update on; before, it has the initial values that its id decides (served_table.h), so that it
// makes no difference when or where it is created.
//
// Rows lie in slabs of some megabytes, each row in one piece: its weights, then the optimizer's
// state. With a bound on the rows, those whose last update is longest ago (counted in updates of
// the table, never in time) are dropped; a dropped row begins anew. Not thread safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "trireme/ps/rows/row_index.h"
#include "trireme/ps/rows/row_rule.h"
#include "trireme/ps/rows/served_table.h"
#include "trireme/ps/rows/sparse_rows.h"

namespace trireme::inline v0::ps {

/// Rows of a table as a checkpoint has them, in any order.
struct SavedTable {
  std::string name;
  std::size_t width = 0;
  std::vector<std::string> state_names;  // RowRule::state(); or none, then the state begins anew
  std::vector<std::int64_t> ids;
  std::vector<std::int64_t> last;         // update of the table in which the row was updated last
  std::vector<std::int32_t> updates;      // of the row, so far
  std::vector<float> rows;                // weights
  std::vector<std::vector<float>> state;  // of each of state_names
  std::int64_t table_updates = 0;         // of the table, so far; 0: the highest in `last`
};

/// Calls visit(width, array, same array of each of `more`...) for each array of `table`; `width`:
/// elements per row. All tables have equally many arrays of state.
template <class Visit, class Table, class... More>
void for_each_array(Visit visit, Table& table, More&... more) {
  visit(std::size_t{1}, table.ids, more.ids...);
  visit(std::size_t{1}, table.last, more.last...);
  visit(std::size_t{1}, table.updates, more.updates...);
  visit(table.width, table.rows, more.rows...);
  for (std::size_t k = 0; k < table.state.size(); ++k)
    visit(table.width, table.state[k], more.state[k]...);
}

class RowTable {
 public:
  /// `max_rows`: of this server; 0: no bound.
  RowTable(const ServedTable& table, std::int64_t max_rows, const OptimizerOptions& optimizer);

  const ServedTable& table() const noexcept { return table_; }
  std::size_t width() const noexcept { return width_; }
  /// Rows that have memory, and those that were dropped so far.
  std::size_t size() const noexcept { return index_.size(); }
  std::int64_t dropped() const noexcept { return dropped_; }
  const std::vector<std::string>& state_names() const noexcept { return rule_->state(); }

  /// The weights of rows, one after the other. Creates none.
  void read(std::span<const std::int64_t> ids, float* out) const;
  /// From now on copies rows before it updates or drops them. previous(): those of the last update.
  void keep_previous() { previous_.emplace(width_); }
  SparseRows* previous() noexcept { return previous_ ? &*previous_ : nullptr; }
  /// The weights of rows before the last update.
  void read_previous(std::span<const std::int64_t> ids, float* out) const;
  /// One update of these rows, each at most once, by `gradients`, one after the other.
  void update(std::span<const std::int64_t> ids, const float* gradients, double rate, double scale);

  /// All rows by ascending id.
  SavedTable save() const;
  /// Adds rows. The next update gets a higher number than any of theirs. MismatchError, with
  /// nothing changed, if one is here already, or if they are of another table or optimizer.
  void load(const SavedTable& saved);

 private:
  struct Facts {           // of a slot
    std::int64_t id = -1;  // -1: the slot is free
    std::int64_t last = 0;
    std::uint32_t updates = 0;
  };
  struct Free {
    void operator()(float* memory) const noexcept;
  };
  float* row_at(std::uint32_t slot) const noexcept {
    return slabs_[slot >> slab_bits_].get() + (slot & slab_mask_) * stride_;
  }
  std::uint32_t create(std::int64_t id);
  std::uint32_t new_slot();
  void drop_oldest();

  const ServedTable table_;
  const std::size_t width_;
  const std::int64_t max_rows_;
  const std::unique_ptr<RowRule> rule_;
  const InitialRows initial_;
  const std::size_t stride_;  // floats of a row and its state
  std::uint32_t slab_bits_ = 0, slab_mask_ = 0;
  RowIndex index_;
  std::vector<std::unique_ptr<float, Free>> slabs_;
  std::vector<Facts> facts_;          // by slot
  std::vector<std::uint32_t> free_;   // slots
  std::vector<std::uint32_t> slots_;  // of the rows that are being updated
  std::optional<SparseRows> previous_;
  std::int64_t updates_ = 0, dropped_ = 0;
};

}  // namespace trireme::inline v0::ps
