// What `trireme train --fit` considers: the layouts, lanes and recomputation of a configuration on
// so many ranks, each with its predicted memory and time. Starts nothing.
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

/// For what: so many ranks that may each take so many bytes, on a machine whose products run at
/// `flop_rate` operations a second (tensor::linear_rate; 0: not measured, no times are predicted).
struct FitPlace {
  int ranks = 1;
  std::int64_t limit = 0;
  double flop_rate = 0;
};

/// What may vary without another identity: parallel.sync (with parallel.shard of hybrid),
/// train.lanes and memory.recompute. Those that the configuration has from the command line or the
/// environment stay as they are. With `micro`, which is part of the identity, in the place of
/// batch.micro. Least communication first, then most lanes, then least recomputation; more of it
/// only where less is not predicted to fit with room to spare. ConfigError where parallel.sync
/// decides the bits itself (local_sgd and its relatives).
std::vector<plan::FitCandidate> fit_candidates(const config::Config& config,
                                               const Settings& settings,
                                               const input::Corpus& corpus, const FitPlace& place,
                                               std::int64_t micro);

/// For a new job where nothing fits: the divisors of batch.global below batch.micro, largest first.
std::vector<std::int64_t> smaller_micro_batches(const Settings& settings);

struct MemoryLeft {
  std::int64_t bytes = 0;
  std::string reason;  // "memory.limit", "17.2 GB are left on this machine"
};
/// What this machine and its control group have left; 0: not known.
MemoryLeft memory_of_host();
/// Bytes that a rank may take, and why: memory.limit, or its part of memory_of_host(), of which
/// `ranks` ranks have `shared` bytes once.
MemoryLeft memory_for_a_rank(const Settings& settings, int ranks, std::int64_t shared);

}  // namespace train
}  // namespace v0
}  // namespace trireme
