#include "trireme/ps/server/saved.h"

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>

#include "trireme/base/error.h"

namespace trireme::inline v0::ps {

void to_json(nlohmann::json& json, const SavedText::Array& array) {
  json = {array.name, name_of(array.dtype), array.shape, array.begin, array.end};
}

void from_json(const nlohmann::json& json, SavedText::Array& array) {
  const auto dtype = dtype_named(json.at(1).get<std::string>());
  if (!dtype) throw MismatchError("it sends state of an unknown type");
  array = {json.at(0), *dtype, json.at(2), json.at(3), json.at(4)};
}

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(SavedText::Table, name, rows, width, state, updates)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(SavedText, version, step_count, arrays, tables)

namespace {

std::vector<SavedText::Array> arrays_of(const std::vector<NamedShard>& state) {
  std::vector<SavedText::Array> arrays;
  for (const NamedShard& shard : state)
    arrays.push_back({shard.name, shard.dtype, shard.shape, shard.begin, shard.end});
  return arrays;
}

using Parts = std::vector<std::span<const std::byte>>;

std::size_t bytes_of(const Parts& parts) noexcept {
  std::size_t bytes = 0;
  for (const std::span<const std::byte> part : parts) bytes += part.size();
  return bytes;
}

void add_tables(std::span<const SavedTable> tables, SavedText& text, Parts& parts) {
  const auto add = [&](std::size_t, const auto& values) {
    parts.push_back(std::as_bytes(std::span(values)));
  };
  for (const SavedTable& table : tables) {
    text.tables.push_back(
        {table.name, table.ids.size(), table.width, table.state_names, table.table_updates});
    for_each_array(add, table);
  }
}

}  // namespace

std::string SavedText::to_text() const { return nlohmann::json(*this).dump(); }

SavedText SavedText::from_text(std::string_view text) {
  try {
    return nlohmann::json::parse(text).get<SavedText>();
  } catch (const nlohmann::json::exception&) {
    throw MismatchError("it sends weights with a description that cannot be read");
  }
}

std::size_t SavedText::Table::bytes() const noexcept {
  return rows * (2 * sizeof(std::int64_t) + sizeof(std::int32_t) +
                 width * sizeof(float) * (1 + state.size()));
}

Saving::Saving(Shard& shard, std::int64_t version, bool with_rows)
    : state_(shard.optimizer().state()) {
  text_ = {version, shard.optimizer().step_count(), arrays_of(state_)};
  parts_.push_back(shard.weights());
  for (const NamedShard& one : state_)
    parts_.push_back({static_cast<const std::byte*>(one.local.data_ptr()), one.local.nbytes()});
  if (with_rows) tables_ = shard.rows().save();
  add_tables(tables_, text_, parts_);
}

std::size_t Saving::bytes() const noexcept { return bytes_of(parts_); }

void Saving::write(std::span<std::byte> to) const {
  for (const std::span<const std::byte> part : parts_) {
    std::copy(part.begin(), part.end(), to.begin());
    to = to.subspan(part.size());
  }
}

Saved save(Shard& shard, std::int64_t version) {
  const Saving saving(shard, version, /*with_rows=*/true);
  Saved saved{.text = saving.text(), .memory = std::vector<std::byte>(saving.bytes())};
  saving.write(saved.memory);
  return saved;
}

void append(Saved& saved, SavedText text, std::span<const SavedTable> tables) {
  Parts parts;
  add_tables(tables, text, parts);
  saved.memory.reserve(saved.memory.size() + bytes_of(parts));
  for (const std::span<const std::byte> part : parts)
    saved.memory.insert(saved.memory.end(), part.begin(), part.end());
  saved.text = text.to_text();
}

std::vector<SavedTable> tables_in(const SavedText& text, std::span<const std::byte> memory) {
  std::vector<SavedTable> tables;
  const std::byte* from = memory.data();
  for (const SavedText::Table& one : text.tables) {
    const auto take = [&]<class T>(std::size_t width, std::vector<T>& values) {
      values.resize(one.rows * width);
      const std::size_t bytes = values.size() * sizeof(T);
      if (bytes > 0) std::memcpy(values.data(), from, bytes);
      from += bytes;
    };
    SavedTable& table = tables.emplace_back(SavedTable{.name = one.name,
                                                       .width = one.width,
                                                       .state_names = one.state,
                                                       .table_updates = one.updates});
    table.state.resize(one.state.size());
    for_each_array(take, table);
  }
  return tables;
}

std::int64_t fill(Shard& shard, std::string_view text, std::span<const std::byte> memory,
                  std::int64_t own) {
  const SavedText saved = SavedText::from_text(text);
  std::size_t bytes = shard.bytes();
  for (const SavedText::Array& array : saved.arrays) bytes += array.bytes();
  const std::size_t tables_at = bytes;
  for (const SavedText::Table& table : saved.tables) bytes += table.bytes();
  const std::vector<NamedShard> state = shard.optimizer().state();
  if (!saved.arrays.empty() && saved.arrays != arrays_of(state))
    throw MismatchError("it sends the state of another optimizer");
  if (memory.size() != bytes)
    throw MismatchError("it sends " + std::to_string(memory.size()) +
                        " bytes of weights and state, " + std::to_string(bytes) + " are needed");
  shard.rows().load(tables_in(saved, memory.subspan(tables_at)));
  shard.set_weights(memory.first(shard.bytes()));
  const std::byte* from = memory.data() + shard.bytes();
  if (!saved.arrays.empty()) {
    for (const NamedShard& one : state) {
      if (one.local.nbytes() > 0)  // a shard of embeddings' rows alone has no address
        std::memcpy(one.local.data_ptr(), from, one.local.nbytes());
      from += one.local.nbytes();
    }
    shard.optimizer().set_step_count(saved.step_count);
  }
  return saved.version >= 0 ? saved.version : own;
}

}  // namespace trireme::inline v0::ps
