// LocalRows: the rows of embeddings in a process without servers, to read only: for validation and
// inference on a checkpoint. Rows that were not loaded have their initial values. Not thread safe.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "trireme/ps/rows/row_index.h"
#include "trireme/ps/rows/row_store.h"

namespace trireme::inline v0::ps {

class LocalRows final : public RowStore {
 public:
  using RowStore::RowStore;

  /// ConfigError: training needs servers.
  void push(std::uint32_t table, const at::Tensor& ids, const at::Tensor& gradients) override;

 private:
  void fetch(std::uint32_t table, std::span<const std::int64_t> ids, float* rows) override;
  std::vector<SavedTable> read() override { return loaded_rows(); }
  void take_loaded();

  std::shared_ptr<const std::vector<SavedTable>> rows_;
  std::vector<RowIndex> index_;  // by table, in rows_
};

}  // namespace trireme::inline v0::ps
