// RowStore: where the rows of a model's ServerEmbeddings are, as Strategy and DataParallel see it.
// Not thread safe.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "trireme/models/server_embedding.h"
#include "trireme/ps/rows/row_table.h"
#include "trireme/tensor/state.h"

namespace trireme::inline v0::ps {

class RowStore : public models::RowSource {
 public:
  struct Options {
    /// The names of the optimizer's state, asked for with each state().
    std::function<std::vector<std::string>()> state_names;
    /// Whether this rank's checkpoints have the rows; if not, whether it must take part in loading.
    bool saves = true, loads = true;
  };
  RowStore(std::vector<ServedTable> tables, Options options)
      : tables_(std::move(tables)), options_(std::move(options)) {}

  const std::vector<ServedTable>& tables() const noexcept { return tables_; }
  /// For every table the ids ("NAME.ids") and the weights ("NAME.rows") of the rows that have been
  /// updated, by ascending id; each rank gets all.
  std::vector<NamedShard> weights() { return shards_of(read(), false); }
  /// The same and the optimizer's state, as a checkpoint has them; none on a rank whose checkpoints
  /// have no rows. Loading into them sets loaded().
  std::vector<NamedShard> state();

  /// Frees what was loaded into state(), once the servers have it.
  void forget() noexcept { loaded_ = nullptr; }

  models::PulledRows pull(std::uint32_t table, const at::Tensor& ids) final;

 protected:
  /// The weights of distinct rows.
  virtual void fetch(std::uint32_t table, std::span<const std::int64_t> ids, float* rows) = 0;
  /// All rows that servers have, by ascending id.
  virtual std::vector<SavedTable> read() = 0;
  /// The tables last loaded into state(); null: none. CheckpointError if their arrays do not belong
  /// together.
  std::shared_ptr<const std::vector<SavedTable>> loaded() const;
  /// The same, or no rows.
  std::vector<SavedTable> loaded_rows() const;

 private:
  std::vector<SavedTable> empty_tables() const;
  std::vector<NamedShard> shards_of(std::vector<SavedTable> tables, bool with_state);

  const std::vector<ServedTable> tables_;
  const Options options_;
  std::shared_ptr<const std::vector<SavedTable>> loaded_;
};

/// The rows of all servers together, by ascending id; and the rows of one server among `all`.
std::vector<SavedTable> joined_rows(std::span<const std::vector<SavedTable>> servers);
std::vector<SavedTable> rows_of_server(std::span<const SavedTable> all,
                                       std::span<const ServedTable> tables, int server,
                                       int servers);

/// The tables of a model's embeddings, each once. ConfigError if two embeddings of one name differ.
std::vector<ServedTable> tables_of(std::span<models::ServerEmbedding* const> embeddings);
/// Connects the embeddings to their rows.
void connect(std::span<models::ServerEmbedding* const> embeddings,
             const std::shared_ptr<RowStore>& store);

}  // namespace trireme::inline v0::ps
