// ServedTable: an embedding table on parameter servers, as all workers and servers know it, and the
// two functions of a row's id that need no server: which server has the row, and its initial values.
#pragma once

#include <cstdint>
#include <string>

#include "trireme/models/server_embedding.h"

namespace trireme::inline v0::ps {

using models::ServedTable;

/// Which of `servers` has row `id`: a hash, so that ids of any distribution are spread evenly.
int server_of_row(const ServedTable& table, std::int64_t id, int servers) noexcept;

/// The `table.width` values with which row `id` begins: uniform in [-table.bound, table.bound], a
/// function of (table.seed, table.name, id) alone.
class InitialRows {
 public:
  explicit InitialRows(const ServedTable& table);
  void fill(std::int64_t id, float* row) const noexcept;

 private:
  std::uint64_t key_;
  std::int64_t width_;
  float bound_;
};

}  // namespace trireme::inline v0::ps
