// How rows of several tables lie in a message: for each table (in a request with terms: for each
// term, each table) its ids, then one row for each, padded to a multiple of 8 bytes. The message
// says the counts; all else follows from them. Pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "trireme/ps/rows/served_table.h"
#include "trireme/ps/rows/sparse_rows.h"

namespace trireme::inline v0::ps {

/// The offset of rows behind `bytes` of other memory.
constexpr std::size_t rows_offset(std::size_t bytes) noexcept { return (bytes + 63) / 64 * 64; }

/// Bytes of rows of these counts: of ids alone, if `with_rows` is false.
std::size_t row_bytes(std::span<const ServedTable> tables, std::span<const std::uint32_t> counts,
                      bool with_rows = true);
/// The pieces of `memory`, one for each count. MismatchError unless the counts are for these tables
/// and the memory has exactly their bytes.
std::vector<RowsView> rows_in(std::span<const ServedTable> tables,
                              std::span<const std::uint32_t> counts,
                              std::span<const std::byte> memory, bool with_rows = true);

/// A request's memory: `dense` bytes of parameters, and the rows behind them.
struct DividedMemory {
  std::span<const std::byte> dense;
  std::vector<RowsView> rows;
};
/// Divides memory with rows of all tables for each of `terms` terms. MismatchError for another
/// number of counts. Without counts, all memory is dense.
DividedMemory divided(std::span<const ServedTable> tables, std::size_t terms,
                      std::span<const std::uint32_t> counts, std::span<const std::byte> memory,
                      std::size_t dense);

}  // namespace trireme::inline v0::ps
