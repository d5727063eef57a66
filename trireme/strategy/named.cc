#include "trireme/strategy/named.h"

#include <algorithm>
#include <variant>

#include "trireme/base/check.h"
#include "trireme/plan/named_strategies.h"
#include "trireme/sync/sync_plan.h"

namespace trireme::inline v0 {
namespace {

// The option that belongs to a key.
struct OptionOfKey {
  std::string_view key;
  std::variant<std::string StrategyOptions::*, int StrategyOptions::*> member;
};
const OptionOfKey kOptionsOfKeys[] = {{"parallel.sync", &StrategyOptions::sync},
                                      {"parallel.pipeline", &StrategyOptions::pipeline},
                                      {"parallel.schedule", &StrategyOptions::schedule},
                                      {"parallel.tensor", &StrategyOptions::tensor}};

const OptionOfKey& option_of(const std::string& key) {
  const auto* found = std::find_if(std::begin(kOptionsOfKeys), std::end(kOptionsOfKeys),
                                   [&](const OptionOfKey& option) { return option.key == key; });
  TRIREME_CHECK(found != std::end(kOptionsOfKeys));
  return *found;
}

config::Value value_of(const StrategyOptions& options, const std::string& key) {
  const auto read = [&](auto member) -> config::Value {
    if constexpr (std::is_same_v<decltype(member), int StrategyOptions::*>) {
      return std::int64_t{options.*member};
    } else {
      return options.*member;
    }
  };
  return std::visit(read, option_of(key).member);
}

void set_value(StrategyOptions& options, const std::string& key, const config::Value& value) {
  const auto write = [&](auto member) {
    if constexpr (std::is_same_v<decltype(member), int StrategyOptions::*>) {
      options.*member = static_cast<int>(std::get<std::int64_t>(value));
    } else {
      options.*member = std::get<std::string>(value);
    }
  };
  std::visit(write, option_of(key).member);
  // Refuses a level that this release does not have, before a key that belongs to it.
  if (key == "parallel.sync") parallel::plan_sync(options.sync, 1, 0, 1);
}

}  // namespace

StrategyOptions strategy_options(std::string_view name, StrategyOptions options) {
  const StrategyOptions defaults;
  plan::expand(plan::find_strategy(name),
               {.value = [&](const std::string& key) { return value_of(options, key); },
                .source =
                    [&](const std::string& key) {
                      const bool given = value_of(options, key) != value_of(defaults, key);
                      return std::string(given ? "StrategyOptions" : "");
                    },
                .set = [&](const std::string& key,
                           const config::Value& value) { set_value(options, key, value); }});
  return options;
}

std::unique_ptr<Strategy> strategy(std::string_view name, Job& job, const models::Blocks& model,
                                   StrategyOptions options, const OptimizerOptions& optimizer) {
  StrategyOptions named = strategy_options(name, std::move(options));
  plan::check_ranks(plan::find_strategy(name), job.size(), job.num_hosts());
  return std::make_unique<Strategy>(job, model, std::move(named), optimizer);
}

}  // namespace trireme::inline v0
