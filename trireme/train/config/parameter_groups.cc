#include "trireme/train/config/parameter_groups.h"

#include <charconv>
#include <cmath>
#include <sstream>

#include "trireme/base/error.h"
#include "trireme/base/shortened.h"

namespace trireme::inline v0::train {
namespace {

[[noreturn]] void refuse_entry(const std::string& entry, const std::string& why) {
  throw ConfigError("optimizer.groups: \"" + entry + "\" " + why,
                    {.operation = "config",
                     .advice = "Write match=PATTERN, and weight_decay=NUMBER, learning_rate=FACTOR "
                               "or both."});
}

double number_of(const std::string& entry, const std::string& text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || !std::isfinite(value) ||
      value < 0)
    refuse_entry(entry, "has \"" + shortened(text) + "\" where a number from 0 on must stand");
  return value;
}

ParameterGroup group_of(const std::string& entry) {
  ParameterGroup group;
  std::istringstream words(entry);
  for (std::string word; words >> word;) {
    const auto equals = word.find('=');
    const std::string key = word.substr(0, equals);
    const std::string value = equals == std::string::npos ? "" : word.substr(equals + 1);
    if (key == "match") {
      group.match = value;
    } else if (key == "weight_decay") {
      group.weight_decay = number_of(entry, value);
    } else if (key == "learning_rate") {
      group.rate_factor = number_of(entry, value);
    } else {
      refuse_entry(entry, "has \"" + word + "\"");
    }
  }
  if (group.match.empty()) refuse_entry(entry, "does not say which names it is for");
  return group;
}

}  // namespace

std::vector<ParameterGroup> parse_groups(const std::string& text) {
  std::vector<ParameterGroup> groups;
  std::istringstream entries(text);
  for (std::string entry; std::getline(entries, entry, ';');)
    if (entry.find_first_not_of(" \t") != std::string::npos) groups.push_back(group_of(entry));
  return groups;
}

}  // namespace trireme::inline v0::train
