#include "trireme/base/config/config_variables.h"

#include <unistd.h>

#include <algorithm>
#include <cctype>

namespace trireme::inline v0::config {
namespace {

// "train.step" for TRIREME_TRAIN_STEP if `table` is "train"; "" for another table's variable.
std::string key_of(const std::string& variable, const std::string& table) {
  const std::string prefix = environment_name(table) + "_";
  if (!variable.starts_with(prefix)) return {};
  std::string key = table + ".";
  for (const char c : variable.substr(prefix.size()))
    key += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return key;
}

}  // namespace

std::vector<std::string> environment_names() {
  std::vector<std::string> names;
  for (char** one = environ; one != nullptr && *one != nullptr; ++one) {
    const std::string entry = *one;
    names.push_back(entry.substr(0, entry.find('=')));
  }
  std::sort(names.begin(), names.end());
  return names;
}

void check_variables(const Schema& schema, const std::vector<std::string>& names) {
  for (const std::string& name : names) {
    const auto& keys = schema.keys();
    if (std::any_of(keys.begin(), keys.end(),
                    [&](const Key& key) { return environment_name(key.name) == name; }))
      continue;
    for (const Key& key : keys) {
      const std::string own = key_of(name, key.name.substr(0, key.name.find('.')));
      if (!own.empty()) schema.at(own, name);  // throws, because there is no such key
    }
  }
}

}  // namespace trireme::inline v0::config
