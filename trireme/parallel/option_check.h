// What can be wrong with a Strategy's options on so many ranks, and with a model on them: the one
// check, made by whoever plans a job before anything starts, and by the Strategy itself.
//
// Pure, but for reading a schedule's file. Throws ConfigError, one sentence.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/parallel/strategy.h"
#include "trireme/parallel/sync_plan.h"

namespace trireme {
inline namespace v0 {
namespace parallel {

/// Where a Strategy runs.
struct RankPlace {
  int ranks = 1;
  int ranks_a_host = 1;  // where all hosts have as many; 0: they do not
  int rank = -1;         // for the sentence; -1: nobody's
};

/// `optimizer`: its name (optim::Optimizer::name). Returns what parallel.sync means among the ranks
/// that hold the same part of the model.
SyncPlan check_options(const StrategyOptions& options, std::string_view optimizer,
                       const RankPlace& place);

/// What ranks can share of a model, as far as it is known before its blocks are built.
struct ModelShape {
  struct Share {
    std::string what;  // "4 attention heads"
    std::int64_t count = 0;
  };
  /// What tensor-parallel ranks divide. Empty: no layer can be cut.
  std::vector<Share> shares = {};
  std::int64_t vocabulary = 0;  // rows of the table of tokens; 0: there is none
  std::int64_t positions = 0;   // of a sequence that ranks can cut; 0: there is none
  int experts = 0;              // of each mixture; 0: there is none
};
/// `shape` on the ranks of `options`, with micro-batches of `micro` samples.
void check_shares(const StrategyOptions& options, const ModelShape& shape, std::int64_t micro,
                  int rank = -1);

/// What a Strategy says where it finds out by building the model.
[[noreturn]] void refuse_uncut_model(int tensor_ranks, int rank = -1);
[[noreturn]] void refuse_model_without_experts(int expert_ranks, int rank = -1);

}  // namespace parallel
}  // namespace v0
}  // namespace trireme
