#include "trireme/ps/saved.h"

#include <cstring>
#include <nlohmann/json.hpp>

#include "trireme/base/error.h"

namespace trireme::inline v0::ps {
namespace {

void to_json(nlohmann::json& json, const SavedText::Array& array) {
  json = {array.name, name_of(array.dtype), array.shape, array.begin, array.end};
}

void from_json(const nlohmann::json& json, SavedText::Array& array) {
  const auto dtype = dtype_named(json.at(1).get<std::string>());
  if (!dtype) throw MismatchError("it sends state of an unknown type");
  array = {json.at(0), *dtype, json.at(2), json.at(3), json.at(4)};
}

std::vector<SavedText::Array> arrays_of(const std::vector<NamedShard>& state) {
  std::vector<SavedText::Array> arrays;
  for (const NamedShard& shard : state)
    arrays.push_back({shard.name, shard.dtype, shard.shape, shard.begin, shard.end});
  return arrays;
}

}  // namespace

std::string SavedText::to_text() const {
  nlohmann::json list = nlohmann::json::array();
  for (const Array& array : arrays) to_json(list.emplace_back(), array);
  return nlohmann::json{{"version", version}, {"step_count", step_count}, {"arrays", list}}.dump();
}

SavedText SavedText::from_text(std::string_view text) {
  try {
    const auto json = nlohmann::json::parse(text);
    SavedText saved{.version = json.at("version"), .step_count = json.at("step_count")};
    for (const nlohmann::json& one : json.at("arrays")) from_json(one, saved.arrays.emplace_back());
    return saved;
  } catch (const nlohmann::json::exception&) {
    throw MismatchError("it sends weights with a description that cannot be read");
  }
}

Saved save(Shard& shard, std::int64_t version) {
  const std::vector<NamedShard> state = shard.state();
  Saved saved{.text = SavedText{version, shard.step_count(), arrays_of(state)}.to_text()};
  saved.memory.assign(shard.weights().begin(), shard.weights().end());
  for (const NamedShard& one : state) {
    const auto* data = static_cast<const std::byte*>(one.local.data_ptr());
    saved.memory.insert(saved.memory.end(), data, data + one.local.nbytes());
  }
  return saved;
}

std::int64_t fill(Shard& shard, std::string_view text, std::span<const std::byte> memory,
                  std::int64_t own) {
  const SavedText saved = SavedText::from_text(text);
  std::size_t bytes = shard.bytes();
  for (const SavedText::Array& array : saved.arrays) bytes += array.bytes();
  const std::vector<NamedShard> state = shard.state();
  if (!saved.arrays.empty() && saved.arrays != arrays_of(state))
    throw MismatchError("it sends the state of another optimizer");
  if (memory.size() != bytes)
    throw MismatchError("it sends " + std::to_string(memory.size()) +
                        " bytes of weights and state, " + std::to_string(bytes) + " are needed");
  shard.set_weights(memory.first(shard.bytes()));
  const std::byte* from = memory.data() + shard.bytes();
  if (!saved.arrays.empty()) {
    for (const NamedShard& one : state) {
      std::memcpy(one.local.data_ptr(), from, one.local.nbytes());
      from += one.local.nbytes();
    }
    shard.set_step_count(saved.step_count);
  }
  return saved.version >= 0 ? saved.version : own;
}

}  // namespace trireme::inline v0::ps
