#include "trireme/train/model_values.h"

#include <algorithm>
#include <utility>

#include "trireme/base/error.h"
#include "trireme/train/data_source.h"
#include "trireme/train/model_family.h"
#include "trireme/train/model_size.h"
#include "trireme/train/module_precision.h"

namespace trireme {
inline namespace v0 {
namespace {

constexpr std::string_view kTable = "model.";

std::string unquoted(const config::Value& value) {
  const auto* text = std::get_if<std::string>(&value);
  return text != nullptr ? *text : config::to_toml(value);
}

}  // namespace

ModelValues::ModelValues(std::string model, const std::vector<config::Key>& keys,
                         const config::Config& config)
    : model_(std::move(model)),
      seed_(static_cast<std::uint64_t>(config.integer("train.seed"))),
      precision_(config.text("train.precision")) {
  for (const config::Key& key : keys) {
    order_.push_back(key.name.substr(kTable.size()));
    values_[order_.back()] = config.value(key.name);
  }
}

void ModelValues::refuse(const std::string& what) const {
  std::string all;
  for (const std::string& name : order_) all += (all.empty() ? "" : ", ") + name;
  throw ConfigError("the model " + model_ + " " + what,
                    {.operation = "model", .advice = "Its keys are " + all + "."});
}

template <class T>
const T& ModelValues::get(std::string_view key, config::Type type) const {
  const auto found = values_.find(key);
  if (found == values_.end()) refuse("reads a key \"" + std::string(key) + "\" that it has not");
  if (const T* value = std::get_if<T>(&found->second)) return *value;
  refuse("reads its key \"" + std::string(key) + "\" as " + std::string(config::describe(type)) +
         ", and it is " +
         std::string(config::describe(static_cast<config::Type>(found->second.index()))));
}

bool ModelValues::boolean(std::string_view key) const {
  return get<bool>(key, config::Type::Boolean);
}
std::int64_t ModelValues::integer(std::string_view key) const {
  return get<std::int64_t>(key, config::Type::Integer);
}
double ModelValues::number(std::string_view key) const {
  const auto found = values_.find(key);
  if (found != values_.end())
    if (const auto* whole = std::get_if<std::int64_t>(&found->second))
      return static_cast<double>(*whole);
  return get<double>(key, config::Type::Number);
}
const std::string& ModelValues::text(std::string_view key) const {
  return get<std::string>(key, config::Type::Text);
}

std::string ModelValues::summary() const {
  std::string all;
  for (const std::string& name : order_)
    if (name != "block")
      all += (all.empty() ? "" : ", ") + name + " " + unquoted(values_.find(name)->second);
  return all;
}

namespace train {
namespace {

[[noreturn]] void refuse(const std::string& what, const std::string& advice) {
  throw ConfigError(what, {.operation = "App", .advice = advice});
}

config::Key full_key(const ModelKey& key) {
  return {.name = std::string(kTable) + key.name,
          .fallback = key.fallback,
          .meaning = key.meaning,
          .minimum = key.minimum,
          .maximum = key.maximum,
          .identity = true};
}

std::vector<config::Key> full_keys(const std::string& model, const std::vector<ModelKey>& keys) {
  std::vector<config::Key> all;
  const auto has = [&](const std::string& name) {
    return std::any_of(all.begin(), all.end(),
                       [&](const config::Key& key) { return key.name == name; });
  };
  for (const ModelKey& key : keys) {
    const config::Key full = full_key(key);
    if (key.name.empty() || key.name == "name" ||
        key.name.find_first_of(". =\"") != std::string::npos)
      refuse("the model " + model + " cannot have a key \"" + key.name + "\"",
             "Use a word; model.name says which model.");
    if (has(full.name))
      refuse("the model " + model + " has two keys \"" + key.name + "\"",
             "Give each a name of its own.");
    if (key.name == "block" && full.type() != config::Type::Integer)
      refuse("the key \"block\" of the model " + model + " is no integer",
             "It is the length of a sequence, in tokens.");
    all.push_back(full);
  }
  if (!has("model.block"))
    all.push_back(full_key({"block", std::int64_t{64}, "tokens of a sequence", 1, 1e6}));
  return all;
}

}  // namespace

ModelFamily text_family(const std::string& name, const std::vector<ModelKey>& keys,
                        ModelFactory make) {
  const std::vector<config::Key> own = full_keys(name, keys);
  ModelFamily family{.name = name, .keys = own};
  for (config::Key& key : text_keys()) family.keys.push_back(std::move(key));
  family.make = [name, own, make = std::move(make)](const config::Config& config) {
    const ModelValues values(name, own, config);
    const std::int64_t block = values.block();
    const models::Blocks blocks = in_precision(make(values), values.precision());
    return TrainingModel{
        .description =
            name + ", " + values.summary() + ", sequences of " + std::to_string(block) + " bytes",
        .blocks = blocks,
        .loss = token_loss(),
        .data = text_source(block, values.seed()),
        .figures = [blocks,
                    block](std::int64_t samples) { return measure_size(blocks, samples, block); },
        .context = block};
  };
  return family;
}

}  // namespace train
}  // namespace v0
}  // namespace trireme
