// RowRouter: which rows of some terms go to which server, and how they lie in its message
// (row_message.h). Not thread safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "trireme/ps/rows/served_table.h"
#include "trireme/ps/rows/sparse_rows.h"

namespace trireme::inline v0::ps {

class RowRouter {
 public:
  RowRouter(std::span<const ServedTable> tables, int servers);

  /// Takes each term's rows of each table; what they refer to stays until the next call.
  void route(std::span<const std::vector<RowsView>> terms);
  /// The same for ids of one table, without rows.
  void route_ids(std::uint32_t table, std::span<const std::int64_t> ids);

  /// Forgets the rows.
  void clear();

  const std::vector<std::uint32_t>& counts(int server) const { return of(server).counts; }
  /// Positions of the rows in their pieces, one piece after the other.
  const std::vector<std::uint32_t>& positions(int server) const { return of(server).positions; }
  std::size_t bytes(int server) const;
  /// Writes bytes() of the server's message.
  void write(int server, std::span<std::byte> out) const;

 private:
  struct ServerRows {
    std::vector<std::uint32_t> counts, positions;
  };
  const ServerRows& of(int server) const { return parts_[static_cast<std::size_t>(server)]; }
  void add_piece(const ServedTable& table, const RowsView& rows);

  const std::vector<ServedTable> tables_;
  std::vector<ServerRows> parts_;  // by server
  std::vector<RowsView> pieces_;   // by term, by table
  bool with_rows_ = false;
};

}  // namespace trireme::inline v0::ps
