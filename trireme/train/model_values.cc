#include "trireme/train/model_values.h"

#include <utility>

#include "trireme/base/error.h"

namespace trireme::inline v0 {
namespace {

std::string unquoted(const config::Value& value) {
  const auto* text = std::get_if<std::string>(&value);
  return text != nullptr ? *text : config::to_toml(value);
}

}  // namespace

OwnValues::OwnValues(std::string kind, std::string name, const std::vector<config::Key>& keys,
                     const config::Config& config)
    : kind_(std::move(kind)),
      name_(std::move(name)),
      seed_(static_cast<std::uint64_t>(config.integer("train.seed"))),
      precision_(config.text("train.precision")) {
  for (const config::Key& key : keys) {
    order_.push_back(key.name.substr(kind_.size() + 1));
    values_[order_.back()] = config.value(key.name);
  }
}

void OwnValues::refuse(const std::string& what) const {
  std::string all;
  for (const std::string& name : order_) all += (all.empty() ? "" : ", ") + name;
  throw ConfigError("the " + kind_ + " " + name_ + " " + what,
                    {.operation = kind_, .advice = "Its keys are " + all + "."});
}

template <class T>
const T& OwnValues::get(std::string_view key, config::Type type) const {
  const auto found = values_.find(key);
  if (found == values_.end()) refuse("reads a key \"" + std::string(key) + "\" that it has not");
  if (const T* value = std::get_if<T>(&found->second)) return *value;
  refuse("reads its key \"" + std::string(key) + "\" as " + std::string(config::describe(type)) +
         ", and it is " +
         std::string(config::describe(static_cast<config::Type>(found->second.index()))));
}

bool OwnValues::boolean(std::string_view key) const {
  return get<bool>(key, config::Type::Boolean);
}
std::int64_t OwnValues::integer(std::string_view key) const {
  return get<std::int64_t>(key, config::Type::Integer);
}
double OwnValues::number(std::string_view key) const {
  const auto found = values_.find(key);
  if (found != values_.end())
    if (const auto* whole = std::get_if<std::int64_t>(&found->second))
      return static_cast<double>(*whole);
  return get<double>(key, config::Type::Number);
}
const std::string& OwnValues::text(std::string_view key) const {
  return get<std::string>(key, config::Type::Text);
}

std::string OwnValues::summary() const {
  std::string all;
  for (const std::string& name : order_)
    if (name != "block")
      all += (all.empty() ? "" : ", ") + name + " " + unquoted(values_.find(name)->second);
  return all;
}

}  // namespace trireme::inline v0
