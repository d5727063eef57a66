#include "trireme/ps/rows/row_router.h"

#include <cstring>

#include "trireme/base/check.h"
#include "trireme/ps/rows/row_message.h"

namespace trireme::inline v0::ps {

RowRouter::RowRouter(std::span<const ServedTable> tables, int servers)
    : tables_(tables.begin(), tables.end()), parts_(static_cast<std::size_t>(servers)) {}

void RowRouter::add_piece(const ServedTable& table, const RowsView& rows) {
  pieces_.push_back(rows);
  for (ServerRows& part : parts_) part.counts.push_back(0);
  const auto servers = static_cast<int>(parts_.size());
  for (std::size_t i = 0; i < rows.ids.size(); ++i) {
    const int server = servers == 1 ? 0 : server_of_row(table, rows.ids[i], servers);
    ServerRows& part = parts_[static_cast<std::size_t>(server)];
    ++part.counts.back();
    part.positions.push_back(static_cast<std::uint32_t>(i));
  }
}

void RowRouter::clear() {
  pieces_.clear();
  for (ServerRows& part : parts_) {
    part.counts.clear();
    part.positions.clear();
  }
}

void RowRouter::route(std::span<const std::vector<RowsView>> terms) {
  clear();
  with_rows_ = true;
  for (const std::vector<RowsView>& term : terms) {
    TRIREME_CHECK(term.size() == tables_.size());
    for (std::size_t i = 0; i < tables_.size(); ++i) add_piece(tables_[i], term[i]);
  }
}

void RowRouter::route_ids(std::uint32_t table, std::span<const std::int64_t> ids) {
  std::vector<RowsView> term(tables_.size());
  term[table].ids = ids;
  route(std::span(&term, 1));
  with_rows_ = false;
}

std::size_t RowRouter::bytes(int server) const {
  return row_bytes(tables_, counts(server), with_rows_);
}

void RowRouter::write(int server, std::span<std::byte> out) const {
  const std::uint32_t* position = positions(server).data();
  std::byte* at = out.data();
  for (std::size_t i = 0; i < pieces_.size(); ++i) {
    const RowsView& piece = pieces_[i];
    const std::size_t count = counts(server)[i];
    const std::size_t width = static_cast<std::size_t>(tables_[i % tables_.size()].width);
    for (std::size_t k = 0; k < count; ++k, at += sizeof(std::int64_t))
      std::memcpy(at, &piece.ids[position[k]], sizeof(std::int64_t));
    if (with_rows_) {
      for (std::size_t k = 0; k < count; ++k, at += width * sizeof(float))
        std::memcpy(at, piece.rows + position[k] * width, width * sizeof(float));
      if (count * width % 2 != 0) at += sizeof(float);
    }
    position += count;
  }
}

}  // namespace trireme::inline v0::ps
