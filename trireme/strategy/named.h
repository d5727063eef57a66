// strategy(): a Strategy by the name that other systems have for it (plan/named_strategies.h).
#pragma once

#include <memory>
#include <string_view>

#include "trireme/strategy/strategy.h"

namespace trireme::inline v0 {

/// `options` with what `name` means ("MirroredStrategy", "FSDP", "zero3"; `trireme show strategies`
/// lists them). ConfigError for an unknown name, for an option that differs from its default and
/// contradicts the name, and for what this build cannot run.
StrategyOptions strategy_options(std::string_view name, StrategyOptions options = {});

/// A Strategy with these options. ConfigError also if the name does not go with the job's ranks and
/// hosts.
std::unique_ptr<Strategy> strategy(std::string_view name, Job& job, const models::Blocks& model,
                                   StrategyOptions options, const OptimizerOptions& optimizer);

}  // namespace trireme::inline v0
