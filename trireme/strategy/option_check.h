// Checks a Strategy's options for a number of ranks, and a model for those options. Whoever plans a
// job makes this check before anything starts, and the Strategy makes it again.
//
// Pure, except that it may read a schedule file. Throws ConfigError with one sentence.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "trireme/strategy/model_shape.h"
#include "trireme/strategy/strategy.h"
#include "trireme/sync/sync_plan.h"

namespace trireme::inline v0::parallel {

/// The place in which a Strategy runs.
struct RankPlace {
  int ranks = 1;
  int ranks_a_host = 1;  // equal on all hosts; 0: not equal
  int rank = -1;         // for the message; -1: none
};

/// `optimizer`: its name (optim::Optimizer::name). Returns the plan of parallel.sync for the ranks
/// that hold the same part of the model.
SyncPlan check_options(const StrategyOptions& options, std::string_view optimizer,
                       const RankPlace& place);

/// The settings that must be equal on all ranks, as text. `optimizer`: its name, with its numbers where they
/// are known.
std::string settings_of(const StrategyOptions& options, const std::string& optimizer);

/// Checks `shape` for the layout of `options`, with micro-batches of `micro` samples.
void check_shares(const StrategyOptions& options, const ModelShape& shape, std::int64_t micro,
                  int rank = -1);

/// The same refusals for a Strategy, which finds out when it builds the model.
[[noreturn]] void refuse_uncut_model(int tensor_ranks, int rank = -1);
[[noreturn]] void refuse_model_without_experts(int expert_ranks, int rank = -1);

}  // namespace trireme::inline v0::parallel
