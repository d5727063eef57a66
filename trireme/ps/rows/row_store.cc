#include "trireme/ps/rows/row_store.h"

#include <ATen/Functions.h>
#include <ATen/ops/from_blob.h>

#include <algorithm>
#include <cstring>
#include <numeric>

#include "trireme/base/check.h"
#include "trireme/base/error.h"
#include "trireme/tensor/convert.h"

namespace trireme::inline v0::ps {
namespace {

// A copy of `from` with only the rows at `positions`.
SavedTable selected(const SavedTable& from, const std::vector<std::size_t>& positions) {
  SavedTable to{.name = from.name, .width = from.width, .state_names = from.state_names};
  to.state.resize(from.state.size());
  const auto select = [&](std::size_t width, auto& some, const auto& all) {
    for (const std::size_t i : positions) {
      const auto row = all.begin() + static_cast<std::ptrdiff_t>(i * width);
      some.insert(some.end(), row, row + static_cast<std::ptrdiff_t>(width));
    }
  };
  for_each_array(select, to, from);
  return to;
}

// A shard that aliases a vector of `owner`, and replaces its content when it is loaded.
template <class T>
NamedShard shard_of(const std::string& name, std::vector<T>& values, std::int64_t width,
                    const std::shared_ptr<void>& owner, std::function<void()> loaded) {
  const auto rows = static_cast<std::int64_t>(values.size()) / std::max<std::int64_t>(width, 1);
  std::vector<std::int64_t> shape =
      width > 0 ? std::vector<std::int64_t>{rows, width} : std::vector<std::int64_t>{rows};
  const DType dtype = DTypeOf<T>::value;
  const at::Tensor local = at::from_blob(
      values.data(), shape, [owner](void*) {}, at::TensorOptions(tensor::scalar_type_of(dtype)));
  return {.name = name,
          .dtype = dtype,
          .shape = shape,
          .begin = 0,
          .end = local.numel(),
          .local = local,
          .load = [&values, owner, loaded](const at::Tensor& saved) {
            const at::Tensor flat = saved.contiguous();
            values.assign(flat.const_data_ptr<T>(), flat.const_data_ptr<T>() + flat.numel());
            loaded();
          }};
}

}  // namespace

models::PulledRows RowStore::pull(std::uint32_t table, const at::Tensor& ids) {
  const at::Tensor flat = ids.contiguous();
  const auto* id = flat.const_data_ptr<std::int64_t>();
  const at::Tensor places = at::empty_like(flat);
  auto* place = places.mutable_data_ptr<std::int64_t>();
  RowIndex index;
  std::vector<std::int64_t> distinct;
  index.reserve(static_cast<std::size_t>(flat.numel()));
  for (std::int64_t i = 0; i < flat.numel(); ++i) {
    if (id[i] < 0) continue;
    const auto next = static_cast<std::uint32_t>(distinct.size());
    place[i] = index.insert(id[i], next);
    if (place[i] == next) distinct.push_back(id[i]);
  }
  const auto count = static_cast<std::int64_t>(distinct.size());
  for (std::int64_t i = 0; i < flat.numel(); ++i)
    if (id[i] < 0) place[i] = count;
  models::PulledRows pulled{.ids = at::empty({count}, at::kLong),
                            .rows = at::empty({count + 1, tables_[table].width}, at::kFloat),
                            .places = places};
  std::copy(distinct.begin(), distinct.end(), pulled.ids.mutable_data_ptr<std::int64_t>());
  if (count > 0) fetch(table, distinct, pulled.rows.mutable_data_ptr<float>());
  pulled.rows.narrow(0, count, 1).zero_();
  return pulled;
}

std::vector<NamedShard> RowStore::shards_of(std::vector<SavedTable> tables, bool with_state) {
  std::vector<NamedShard> shards;
  const auto all = std::make_shared<std::vector<SavedTable>>(std::move(tables));
  for (std::size_t i = 0; i < all->size(); ++i) {
    SavedTable& table = (*all)[i];
    const auto keep = [this, all] { loaded_ = all; };  // one array after the other is loaded
    const auto width = static_cast<std::int64_t>(table.width);
    shards.push_back(shard_of(table.name + ".ids", table.ids, 0, all, keep));
    shards.push_back(shard_of(table.name + ".rows", table.rows, width, all, keep));
    if (!with_state) continue;
    const std::string state = "optimizer/" + table.name;
    shards.push_back(shard_of(state + ".last", table.last, 0, all, keep));
    shards.push_back(shard_of(state + ".updates", table.updates, 0, all, keep));
    for (std::size_t k = 0; k < table.state.size(); ++k)
      shards.push_back(
          shard_of(state + ".rows." + table.state_names[k], table.state[k], width, all, keep));
  }
  return shards;
}

std::vector<NamedShard> RowStore::state() {
  if (options_.saves) return shards_of(read(), true);
  return options_.loads ? shards_of(empty_tables(), true) : std::vector<NamedShard>();
}

std::vector<SavedTable> RowStore::empty_tables() const {
  std::vector<SavedTable> none;
  for (const ServedTable& table : tables_) {
    none.push_back({.name = table.name,
                    .width = static_cast<std::size_t>(table.width),
                    .state_names = options_.state_names()});
    none.back().state.resize(none.back().state_names.size());
  }
  return none;
}

std::shared_ptr<const std::vector<SavedTable>> RowStore::loaded() const {
  if (!loaded_) return nullptr;
  for (const SavedTable& table : *loaded_) {
    bool fit = true;
    const auto check = [&](std::size_t width, const auto& values) {
      fit = fit && values.size() == table.ids.size() * width;
    };
    for_each_array(check, table);
    if (!fit)
      throw CheckpointError(
          "the checkpoint's table \"" + table.name + "\" has ids and rows of different numbers",
          {.operation = "resume", .advice = "Use another checkpoint."});
  }
  return loaded_;
}

std::vector<SavedTable> RowStore::loaded_rows() const {
  const auto rows = loaded();
  return rows ? *rows : empty_tables();
}

std::vector<SavedTable> joined_rows(std::span<const std::vector<SavedTable>> servers) {
  const auto append = [](std::size_t, auto& all, const auto& own) {
    all.insert(all.end(), own.begin(), own.end());
  };
  std::vector<SavedTable> all;
  for (std::size_t i = 0; i < servers.front().size(); ++i) {
    SavedTable table = servers.front()[i];
    for (const std::vector<SavedTable>& server : servers.subspan(1))
      for_each_array(append, table, server[i]);
    std::vector<std::size_t> order(table.ids.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::sort(order.begin(), order.end(),
              [&](std::size_t a, std::size_t b) { return table.ids[a] < table.ids[b]; });
    all.push_back(selected(table, order));
  }
  return all;
}

std::vector<SavedTable> rows_of_server(std::span<const SavedTable> all,
                                       std::span<const ServedTable> tables, int server,
                                       int servers) {
  std::vector<SavedTable> part;
  for (std::size_t i = 0; i < all.size(); ++i) {
    std::vector<std::size_t> positions;
    for (std::size_t row = 0; row < all[i].ids.size(); ++row)
      if (server_of_row(tables[i], all[i].ids[row], servers) == server) positions.push_back(row);
    part.push_back(selected(all[i], positions));
  }
  return part;
}

std::vector<ServedTable> tables_of(std::span<models::ServerEmbedding* const> embeddings) {
  std::vector<ServedTable> tables;
  for (const models::ServerEmbedding* embedding : embeddings) {
    const ServedTable& own = embedding->table();
    const auto found = std::find_if(tables.begin(), tables.end(),
                                    [&](const ServedTable& one) { return one.name == own.name; });
    if (found == tables.end()) {
      tables.push_back(own);
    } else if (!(*found == own)) {
      throw ConfigError("two embeddings of the table \"" + own.name + "\" differ",
                        {.operation = "ServerEmbedding",
                         .advice = "Give both the same numbers, or tables of their own."});
    }
  }
  return tables;
}

void connect(std::span<models::ServerEmbedding* const> embeddings,
             const std::shared_ptr<RowStore>& store) {
  for (models::ServerEmbedding* embedding : embeddings) {
    const auto& tables = store->tables();
    const auto found = std::find(tables.begin(), tables.end(), embedding->table());
    TRIREME_CHECK(found != tables.end());
    embedding->connect(store, static_cast<std::uint32_t>(found - tables.begin()));
  }
}

}  // namespace trireme::inline v0::ps
