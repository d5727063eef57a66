#include "trireme/ps/rows/row_table.h"

#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <cstring>
#include <new>
#include <numeric>

#include "trireme/base/check.h"
#include "trireme/base/error.h"
#include "trireme/base/words.h"
#include "trireme/observe/log.h"

namespace trireme::inline v0::ps {
namespace {

constexpr std::size_t kSlabBytes = std::size_t{4} << 20;
constexpr std::size_t kSlabAlignment = std::size_t{2} << 20;  // of a huge page
constexpr std::size_t kAhead = 16;  // rows whose memory is being fetched while another is used

std::size_t rounded_up(std::size_t bytes, std::size_t to) { return (bytes + to - 1) / to * to; }

}  // namespace

void RowTable::Free::operator()(float* memory) const noexcept { std::free(memory); }

RowTable::RowTable(const ServedTable& table, std::int64_t max_rows,
                   const OptimizerOptions& optimizer)
    : table_(table),
      width_(static_cast<std::size_t>(table.width)),
      max_rows_(max_rows),
      rule_(make_row_rule(optimizer, table.name, width_)),
      initial_(table),
      stride_(width_ * (1 + rule_->state().size())) {
  const std::size_t rows = std::bit_floor(std::max<std::size_t>(kSlabBytes / (4 * stride_), 1));
  slab_bits_ = static_cast<std::uint32_t>(std::countr_zero(rows));
  slab_mask_ = static_cast<std::uint32_t>(rows - 1);
}

// Each loop over ids runs kAhead ids behind one that asks for their memory.
void RowTable::read(std::span<const std::int64_t> ids, float* out) const {
  std::uint32_t found[kAhead];
  for (std::size_t i = 0; i < std::min(kAhead, ids.size()); ++i) index_.prefetch(ids[i]);
  for (std::size_t begin = 0; begin < ids.size(); begin += kAhead) {
    const std::size_t count = std::min(kAhead, ids.size() - begin);
    for (std::size_t i = 0; i < count; ++i) {
      if (const std::size_t next = begin + kAhead + i; next < ids.size())
        index_.prefetch(ids[next]);
      found[i] = index_.find(ids[begin + i]);
      if (found[i] == RowIndex::kNone) continue;
      const auto* row = reinterpret_cast<const char*>(row_at(found[i]));
      for (std::size_t at = 0; at < width_ * sizeof(float); at += 64) __builtin_prefetch(row + at);
    }
    for (std::size_t i = 0; i < count; ++i) {
      float* to = out + (begin + i) * width_;
      if (found[i] == RowIndex::kNone)
        initial_.fill(ids[begin + i], to);
      else
        std::memcpy(to, row_at(found[i]), width_ * sizeof(float));
    }
  }
}

void RowTable::read_previous(std::span<const std::int64_t> ids, float* out) const {
  TRIREME_CHECK(previous_);
  read(ids, out);
  for (std::size_t i = 0; i < ids.size(); ++i)
    if (const float* row = previous_->find(ids[i]))
      std::memcpy(out + i * width_, row, width_ * sizeof(float));
}

void RowTable::update(std::span<const std::int64_t> ids, const float* gradients, double rate,
                      double scale) {
  ++updates_;
  rule_->begin(rate, scale);
  if (previous_) previous_->clear();
  slots_.resize(std::min(kAhead, ids.size()));
  for (std::size_t i = 0; i < slots_.size(); ++i) index_.prefetch(ids[i]);
  for (std::size_t begin = 0; begin < ids.size(); begin += kAhead) {
    const std::size_t count = std::min(kAhead, ids.size() - begin);
    for (std::size_t i = 0; i < count; ++i) {
      if (const std::size_t next = begin + kAhead + i; next < ids.size())
        index_.prefetch(ids[next]);
      slots_[i] = index_.find(ids[begin + i]);
      if (slots_[i] == RowIndex::kNone) slots_[i] = create(ids[begin + i]);
      __builtin_prefetch(&facts_[slots_[i]], 1);
      const auto* row = reinterpret_cast<const char*>(row_at(slots_[i]));
      for (std::size_t at = 0; at < stride_ * sizeof(float); at += 64)
        __builtin_prefetch(row + at, 1);
    }
    for (std::size_t i = 0; i < count; ++i) {
      Facts& facts = facts_[slots_[i]];
      facts.last = updates_;
      if (previous_) previous_->keep(facts.id, row_at(slots_[i]));
      rule_->update(row_at(slots_[i]), gradients + (begin + i) * width_, ++facts.updates);
    }
  }
  if (max_rows_ > 0 && static_cast<std::int64_t>(size()) > max_rows_) drop_oldest();
}

std::uint32_t RowTable::create(std::int64_t id) {
  const std::uint32_t slot = new_slot();
  index_.insert(id, slot);
  facts_[slot] = {.id = id};
  float* row = row_at(slot);
  initial_.fill(id, row);
  std::fill(row + width_, row + stride_, 0.0f);
  return slot;
}

std::uint32_t RowTable::new_slot() {
  if (!free_.empty()) {
    const std::uint32_t slot = free_.back();
    free_.pop_back();
    return slot;
  }
  const auto slot = static_cast<std::uint32_t>(facts_.size());
  if ((slot >> slab_bits_) == slabs_.size()) {
    const std::size_t bytes = (std::size_t{slab_mask_} + 1) * stride_ * sizeof(float);
    const std::size_t rounded = rounded_up(bytes, kSlabAlignment);
    auto* memory = static_cast<float*>(
        slot == RowIndex::kNone ? nullptr : std::aligned_alloc(kSlabAlignment, rounded));
    if (memory == nullptr) {
      observe::warning("no memory for another row of \"" + table_.name + "\", which has " +
                       grouped(static_cast<std::int64_t>(size())) +
                       ". Use more servers, or bound the table by max_rows.");
      throw std::bad_alloc();  // ends the server: other rows of the request have been updated
    }
    madvise(memory, rounded, MADV_HUGEPAGE);
    slabs_.emplace_back(memory);
  }
  facts_.emplace_back();
  return slot;
}

// Drops a sixteenth of the bound more than it must, so that the search through all rows is rare. Which
// rows go follows from their last updates and ids alone.
void RowTable::drop_oldest() {
  const std::int64_t keep = std::max<std::int64_t>(max_rows_ - max_rows_ / 16, 1);
  std::vector<std::uint32_t> slots;
  for (std::uint32_t slot = 0; slot < facts_.size(); ++slot)
    if (facts_[slot].id >= 0) slots.push_back(slot);
  const auto end = slots.begin() + (static_cast<std::ptrdiff_t>(slots.size()) - keep);
  std::nth_element(slots.begin(), end, slots.end(), [&](std::uint32_t a, std::uint32_t b) {
    return std::pair(facts_[a].last, facts_[a].id) < std::pair(facts_[b].last, facts_[b].id);
  });
  slots.erase(end, slots.end());
  for (const std::uint32_t slot : slots) {
    if (previous_) previous_->keep(facts_[slot].id, row_at(slot));
    index_.erase(facts_[slot].id);
    facts_[slot] = {};
    free_.push_back(slot);
  }
  dropped_ += static_cast<std::int64_t>(slots.size());
}

SavedTable RowTable::save() const {
  std::vector<std::uint32_t> slots;
  for (std::uint32_t slot = 0; slot < facts_.size(); ++slot)
    if (facts_[slot].id >= 0) slots.push_back(slot);
  std::sort(slots.begin(), slots.end(),
            [&](std::uint32_t a, std::uint32_t b) { return facts_[a].id < facts_[b].id; });
  SavedTable saved{.name = table_.name, .width = width_, .state_names = rule_->state()};
  saved.table_updates = updates_;
  saved.state.resize(rule_->state().size());
  for (const std::uint32_t slot : slots) {
    saved.ids.push_back(facts_[slot].id);
    saved.last.push_back(facts_[slot].last);
    saved.updates.push_back(static_cast<std::int32_t>(facts_[slot].updates));
    const float* row = row_at(slot);
    saved.rows.insert(saved.rows.end(), row, row + width_);
    for (std::size_t k = 0; k < saved.state.size(); ++k)
      saved.state[k].insert(saved.state[k].end(), row + (k + 1) * width_, row + (k + 2) * width_);
  }
  return saved;
}

void RowTable::load(const SavedTable& saved) {
  const std::vector<std::string>& names = saved.state_names;
  if (saved.name != table_.name || saved.width != width_ ||
      (!names.empty() && names != rule_->state()))
    throw MismatchError("it sends rows of another table or optimizer than those of \"" +
                        table_.name + "\"");
  for (const std::int64_t id : saved.ids)
    if (id < 0 || index_.find(id) != RowIndex::kNone)
      throw MismatchError("row " + std::to_string(id) + " of \"" + table_.name +
                          "\" is here already, or is none");
  index_.reserve(size() + saved.ids.size());
  updates_ = std::max(updates_, saved.table_updates);
  for (std::size_t i = 0; i < saved.ids.size(); ++i) {
    const std::uint32_t slot = create(saved.ids[i]);
    float* row = row_at(slot);
    facts_[slot].last = saved.last[i];
    facts_[slot].updates = static_cast<std::uint32_t>(saved.updates[i]);
    updates_ = std::max(updates_, saved.last[i]);
    std::copy_n(&saved.rows[i * width_], width_, row);
    for (std::size_t k = 0; k < names.size(); ++k)
      std::copy_n(&saved.state[k][i * width_], width_, row + (k + 1) * width_);
  }
}

}  // namespace trireme::inline v0::ps
