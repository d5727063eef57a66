#include <map>
#include <utility>

#include "trireme/base/config/config.h"
#include "trireme/base/joined.h"
#include "trireme/base/refuse.h"
#include "trireme/train/families/own_parts.h"

namespace trireme::inline v0 {
namespace {

std::string unquoted(const config::Value& value) {
  const auto* text = std::get_if<std::string>(&value);
  return text != nullptr ? *text : config::to_toml(value);
}

}  // namespace

struct OwnValues::Values {
  std::string kind, name;
  std::vector<std::string> order;
  std::map<std::string, config::Value, std::less<>> of_key;
  std::uint64_t seed = 1;
  std::string precision;

  [[noreturn]] void refuse_key(const std::string& what) const {
    refuse(kind, "the " + kind + " " + name + " " + what, "Its keys are " + joined(order) + ".");
  }

  template <class T>
  const T& get(std::string_view key, config::Type type) const {
    const auto found = of_key.find(key);
    if (found == of_key.end())
      refuse_key("reads a key \"" + std::string(key) + "\" that it does not have");
    if (const T* value = std::get_if<T>(&found->second)) return *value;
    refuse_key("reads its key \"" + std::string(key) + "\" as " +
               std::string(config::describe(type)) + ", and it is " +
               std::string(config::describe(static_cast<config::Type>(found->second.index()))));
  }
};

OwnValues::OwnValues(std::string kind, std::string name, const std::vector<config::Key>& keys,
                     const config::Config& config) {
  auto values = std::make_shared<Values>();
  values->kind = std::move(kind);
  values->name = std::move(name);
  values->seed = static_cast<std::uint64_t>(config.integer("train.seed"));
  values->precision = config.text("train.precision");
  for (const config::Key& key : keys) {
    values->order.push_back(key.name.substr(values->kind.size() + 1));
    values->of_key[values->order.back()] = config.value(key.name);
  }
  values_ = std::move(values);
}

const std::string& OwnValues::name() const noexcept { return values_->name; }
std::uint64_t OwnValues::seed() const noexcept { return values_->seed; }
const std::string& OwnValues::precision() const noexcept { return values_->precision; }

bool OwnValues::boolean(std::string_view key) const {
  return values_->get<bool>(key, config::Type::Boolean);
}
std::int64_t OwnValues::integer(std::string_view key) const {
  return values_->get<std::int64_t>(key, config::Type::Integer);
}
double OwnValues::number(std::string_view key) const {
  const auto found = values_->of_key.find(key);
  if (found != values_->of_key.end())
    if (const auto* whole = std::get_if<std::int64_t>(&found->second))
      return static_cast<double>(*whole);
  return values_->get<double>(key, config::Type::Number);
}
const std::string& OwnValues::text(std::string_view key) const {
  return values_->get<std::string>(key, config::Type::Text);
}

std::string OwnValues::summary() const {
  std::vector<std::string> names = values_->order;
  std::erase(names, "block");
  return joined(names, [&](const std::string& name) {
    return name + " " + unquoted(values_->of_key.find(name)->second);
  });
}

}  // namespace trireme::inline v0
