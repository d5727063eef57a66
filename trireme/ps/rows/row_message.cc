#include "trireme/ps/rows/row_message.h"

#include <string>

#include "trireme/base/error.h"

namespace trireme::inline v0::ps {
namespace {

constexpr std::size_t bytes_of_piece(const ServedTable& table, std::size_t count, bool with_rows) {
  const std::size_t rows = with_rows ? count * static_cast<std::size_t>(table.width) * 4 : 0;
  return count * sizeof(std::int64_t) + (rows + 7) / 8 * 8;
}

}  // namespace

std::size_t row_bytes(std::span<const ServedTable> tables, std::span<const std::uint32_t> counts,
                      bool with_rows) {
  std::size_t bytes = 0;
  for (std::size_t i = 0; i < counts.size(); ++i)
    bytes += bytes_of_piece(tables[i % tables.size()], counts[i], with_rows);
  return bytes;
}

std::vector<RowsView> rows_in(std::span<const ServedTable> tables,
                              std::span<const std::uint32_t> counts,
                              std::span<const std::byte> memory, bool with_rows) {
  const bool fit = tables.empty() ? counts.empty() : counts.size() % tables.size() == 0;
  if (!fit || row_bytes(tables, counts, with_rows) != memory.size())
    throw MismatchError("it sends rows in " + std::to_string(memory.size()) +
                        " bytes, which is not what it says");
  std::vector<RowsView> pieces;
  const std::byte* at = memory.data();
  for (std::size_t i = 0; i < counts.size(); ++i) {
    const auto* ids = reinterpret_cast<const std::int64_t*>(at);
    pieces.push_back({{ids, counts[i]}, reinterpret_cast<const float*>(ids + counts[i])});
    at += bytes_of_piece(tables[i % tables.size()], counts[i], with_rows);
  }
  return pieces;
}

DividedMemory divided(std::span<const ServedTable> tables, std::size_t terms,
                      std::span<const std::uint32_t> counts, std::span<const std::byte> memory,
                      std::size_t dense) {
  if (counts.size() != terms * tables.size())
    throw MismatchError("it sends rows of " + std::to_string(counts.size()) + " tables, not of " +
                        std::to_string(terms * tables.size()));
  if (counts.empty()) return {memory, {}};
  if (memory.size() < rows_offset(dense))
    throw MismatchError("it sends rows without the gradient of the parameters");
  return {memory.first(dense), rows_in(tables, counts, memory.subspan(rows_offset(dense)))};
}

}  // namespace trireme::inline v0::ps
