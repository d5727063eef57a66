#include "trireme/ps/rows/local_rows.h"

#include <algorithm>

#include "trireme/base/error.h"

namespace trireme::inline v0::ps {

void LocalRows::push(std::uint32_t table, const at::Tensor&, const at::Tensor&) {
  throw ConfigError("the rows of embedding \"" + tables()[table].name +
                        "\" are trained by parameter servers, and this job has none",
                    {.operation = "ServerEmbedding",
                     .advice = "Use parallel.sync = \"server\" (docs/servers.md)."});
}

void LocalRows::take_loaded() {
  const auto now = loaded();
  if (now == rows_) return;
  rows_ = now;
  index_.assign(rows_->size(), RowIndex());
  for (std::size_t i = 0; i < rows_->size(); ++i) {
    const std::vector<std::int64_t>& ids = (*rows_)[i].ids;
    index_[i].reserve(ids.size());
    for (std::size_t row = 0; row < ids.size(); ++row)
      index_[i].insert(ids[row], static_cast<std::uint32_t>(row));
  }
}

void LocalRows::fetch(std::uint32_t table, std::span<const std::int64_t> ids, float* rows) {
  take_loaded();
  const auto width = static_cast<std::size_t>(tables()[table].width);
  const InitialRows initial(tables()[table]);
  for (std::size_t i = 0; i < ids.size(); ++i, rows += width) {
    const std::uint32_t at = rows_ ? index_[table].find(ids[i]) : RowIndex::kNone;
    if (at == RowIndex::kNone)
      initial.fill(ids[i], rows);
    else
      std::copy_n(&(*rows_)[table].rows[at * width], width, rows);
  }
}

}  // namespace trireme::inline v0::ps
