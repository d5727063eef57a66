// What `trireme train --fit` considers: the layouts and lanes of a configuration on so many ranks,
// each with its predicted memory. Starts nothing.
#pragma once

#include <cstdint>
#include <vector>

#include "trireme/base/config.h"
#include "trireme/input/corpus.h"
#include "trireme/plan/fit.h"
#include "trireme/train/schema.h"

namespace trireme {
inline namespace v0 {
namespace train {

/// What may vary without another identity: parallel.sync (with parallel.shard of hybrid) and
/// train.lanes; recomputing activations would be the third. Those that the configuration has from
/// the command line or the environment stay as they are. With `micro`, which is part of the
/// identity, in the place of batch.micro. Least communication first, then most lanes. ConfigError
/// where parallel.sync decides the bits itself (local_sgd and its relatives).
std::vector<plan::FitCandidate> fit_candidates(const config::Config& config,
                                               const Settings& settings,
                                               const input::Corpus& corpus, int ranks,
                                               std::int64_t micro);

/// For a new job where nothing fits: the divisors of batch.global below batch.micro, largest first.
std::vector<std::int64_t> smaller_micro_batches(const Settings& settings);

/// Bytes that a rank may take, and why: memory.limit, or what this machine and its cgroup have
/// left, divided by `ranks`.
struct MemoryForARank {
  std::int64_t bytes = 0;
  std::string reason;  // "memory.limit", "17.2 GB are free on this machine, for 2 ranks"
};
MemoryForARank memory_for_a_rank(const Settings& settings, int ranks);

}  // namespace train
}  // namespace v0
}  // namespace trireme
