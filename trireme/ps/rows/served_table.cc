#include "trireme/ps/rows/served_table.h"

#include "trireme/kernel/philox.h"
#include "trireme/ps/rows/row_index.h"

namespace trireme::inline v0::ps {

int server_of_row(const ServedTable& table, std::int64_t id, int servers) noexcept {
  const std::uint64_t hash =
      mixed(static_cast<std::uint64_t>(id) ^ kernel::stream_of(table.name) ^ kMixedStep);
  return static_cast<int>(
      (static_cast<unsigned __int128>(hash) * static_cast<unsigned __int128>(servers)) >> 64);
}

InitialRows::InitialRows(const ServedTable& table)
    : key_(mixed(table.seed) ^ kernel::stream_of(table.name)),
      width_(table.width),
      bound_(static_cast<float>(table.bound)) {}

void InitialRows::fill(std::int64_t id, float* row) const noexcept {
  const auto bits = static_cast<std::uint64_t>(id);
  for (std::int64_t at = 0; at < width_; at += 4) {
    const kernel::PhiloxBlock words =
        kernel::philox(key_, kernel::PhiloxBlock{static_cast<std::uint32_t>(bits),
                                                 static_cast<std::uint32_t>(bits >> 32),
                                                 static_cast<std::uint32_t>(at / 4), 0x726f7773});
    for (std::int64_t i = at; i < width_ && i < at + 4; ++i)
      row[i] = (2 * kernel::unit(words[static_cast<std::size_t>(i - at)]) - 1) * bound_;
  }
}

}  // namespace trireme::inline v0::ps
