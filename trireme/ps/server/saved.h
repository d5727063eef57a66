// A shard's weights and optimizer state as one text and one piece of memory, for checkpoints; with
// the rows of its tables, or without.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/base/buffer.h"
#include "trireme/ps/server/shard.h"

namespace trireme::inline v0::ps {

struct Saved {
  std::string text;               // SavedText
  std::vector<std::byte> memory;  // weights, then the arrays one after the other, then the tables
};

/// The content of the text.
struct SavedText {
  struct Array {
    std::string name;  // "layer.0.weight.exp_avg"
    DType dtype = DType::F32;
    std::vector<std::int64_t> shape;  // of the whole
    std::int64_t begin = 0, end = 0;  // the elements that are here
    std::size_t bytes() const noexcept {
      return static_cast<std::size_t>(end - begin) * size_of(dtype);
    }
    friend bool operator==(const Array&, const Array&) = default;
  };
  std::int64_t version = -1;  // -1: keep the server's
  std::int64_t step_count = 0;
  std::vector<Array> arrays;  // empty: weights only
  struct Table {
    std::string name;
    std::uint64_t rows = 0, width = 0;
    std::vector<std::string> state;  // names of the optimizer's arrays
    std::int64_t updates = 0;        // of the table
    std::size_t bytes() const noexcept;
  };
  std::vector<Table> tables;  // empty: no rows

  std::string to_text() const;
  /// MismatchError for another text.
  static SavedText from_text(std::string_view text);
};

/// A shard that is to be saved: its text, and views of its memory (only rows of tables are copied).
/// The shard must not change meanwhile.
class Saving {
 public:
  Saving(Shard& shard, std::int64_t version, bool with_rows);
  std::string text() const { return text_.to_text(); }
  std::size_t bytes() const noexcept;
  /// Writes the memory, one part after the other; `to` has bytes() or more.
  void write(std::span<std::byte> to) const;

 private:
  SavedText text_;
  std::vector<NamedShard> state_;
  std::vector<SavedTable> tables_;
  std::vector<std::span<const std::byte>> parts_;
};
/// A copy of all of it, with the rows.
Saved save(Shard& shard, std::int64_t version);
/// The reverse; returns the version, or `own` if the text has none. MismatchError, with nothing
/// changed, unless the text fits this shard. The saved rows replace all rows of its tables.
std::int64_t fill(Shard& shard, std::string_view text, std::span<const std::byte> memory,
                  std::int64_t own);

/// Adds rows of tables behind the memory of `saved`; `text`, with these tables, becomes its text.
void append(Saved& saved, SavedText text, std::span<const SavedTable> tables);
/// The reverse. `memory` begins with the tables.
std::vector<SavedTable> tables_in(const SavedText& text, std::span<const std::byte> memory);

}  // namespace trireme::inline v0::ps
