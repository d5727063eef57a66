#include "trireme/strategy/strategy.h"

#include <variant>

#include "trireme/base/check.h"
#include "trireme/base/error.h"
#include "trireme/job/job.h"
#include "trireme/plan/named_strategies.h"
#include "trireme/sync/sync_plan.h"

namespace trireme::inline v0 {
namespace {

config::Value value_of(const StrategyOptions& options, const std::string& key) {
  if (key == "parallel.sync") return options.sync;
  if (key == "parallel.schedule") return options.schedule;
  if (key == "parallel.pipeline") return std::int64_t{options.pipeline};
  if (key == "parallel.tensor") return std::int64_t{options.tensor};
  if (key == "server.staleness") return options.server.bound();
  TRIREME_CHECK(key == "server.count");  // of the launcher
  return std::int64_t{1};
}

void set_value(StrategyOptions& options, const std::string& key, const config::Value& value) {
  const auto number = [&] { return std::get<std::int64_t>(value); };
  if (key == "parallel.sync") options.sync = std::get<std::string>(value);
  if (key == "parallel.schedule") options.schedule = std::get<std::string>(value);
  if (key == "parallel.pipeline") options.pipeline = static_cast<int>(number());
  if (key == "parallel.tensor") options.tensor = static_cast<int>(number());
  if (key == "server.staleness") options.server.staleness = number();
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
                      const bool given = key == "server.staleness"
                                             ? options.server.staleness.has_value()
                                             : value_of(options, key) != value_of(defaults, key);
                      return std::string(given ? "StrategyOptions" : "");
                    },
                .set = [&](const std::string& key,
                           const config::Value& value) { set_value(options, key, value); }});
  return options;
}

std::unique_ptr<Strategy> strategy(std::string_view name, Job& job, const models::Blocks& model,
                                   StrategyOptions options, const OptimizerOptions& optimizer) {
  StrategyOptions named = strategy_options(name, std::move(options));
  const plan::NamedStrategy& found = plan::find_strategy(name);
  plan::check_ranks(found, job.size(), job.num_hosts());
  if (found.servers == 1 && job.roles().servers != 1)
    throw ConfigError(
        found.name + " needs one server, but the job has " + std::to_string(job.roles().servers),
        {.rank = job.rank(),
         .operation = "strategy",
         .advice = "Start one: `trireme launch --workers 4 --servers 1`."});
  return std::make_unique<Strategy>(job, model, std::move(named), optimizer);
}

}  // namespace trireme::inline v0
