// Checks a Strategy's options for a number of ranks, and a model for those options. The plan of a
// job makes these checks before anything starts, and the Strategy makes them again.
//
// Pure, except that it may read a schedule file. Throws ConfigError with one sentence.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/base/words.h"
#include "trireme/strategy/strategy.h"
#include "trireme/sync/strategy_context.h"
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

/// Names all that must be equal on all ranks for equal bits; empty unless reproducible. Call it after
/// set_up_kernels().
std::string processor_of(const StrategyContext& env);
/// The settings that must be equal on all ranks, as text. `optimizer`: name, and numbers if known.
std::string settings_of(const StrategyOptions& options, const std::string& optimizer);
/// The part of that text that StrategyOptions and DataParallelOptions have in common.
template <class Options>
std::string common_settings(const Options& options) {
  return "sync " + options.sync + ", clip " + number_text(options.clip) + ", bucket_bytes " +
         std::to_string(options.bucket_bytes) + ", compression " + options.compression +
         ", shares " + options.shares + ", skip_not_finite " +
         std::to_string(options.skip_not_finite);
}

/// "clip = -1", for a number that StrategyOptions and DataParallelOptions have in common and that cannot
/// be; empty: none.
template <class Options>
std::string wrong_number(const Options& options) {
  if (!(options.clip >= 0)) return "clip = " + number_text(options.clip);
  if (options.bucket_bytes < 1) return "bucket_bytes = " + std::to_string(options.bucket_bytes);
  return {};
}

/// The sizes of a model that ranks may divide, as far as known before its blocks are built.
struct ModelShape {
  struct Share {
    std::string what;  // "4 attention heads"
    std::int64_t count = 0;
  };
  /// Divided among tensor-parallel ranks; empty: no layer can be cut.
  std::vector<Share> shares = {};
  std::int64_t vocabulary = 0;  // rows of the token table; 0: none
  std::int64_t positions = 0;   // of a sequence that ranks can cut; 0: none
  int experts = 0;              // of each mixture; 0: none
};

/// Checks `shape` for the layout of `options`, with micro-batches of `micro` samples.
void check_shape(const StrategyOptions& options, const ModelShape& shape, std::int64_t micro);

/// The same refusals, for a Strategy when it has built the model. `rank`: for messages; -1: none.
[[noreturn]] void refuse_uncut_model(int tensor_ranks, int rank);
[[noreturn]] void refuse_model_without_experts(int expert_ranks, int rank);

}  // namespace trireme::inline v0::parallel
