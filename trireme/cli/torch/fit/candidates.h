// The candidates of `trireme train --fit`: layouts, lanes and recomputation for a configuration and
// a number of ranks, each with its predicted memory and time. Starts nothing.
#pragma once

#include <cstdint>
#include <vector>

#include "trireme/base/config/config.h"
#include "trireme/cli/torch/fit/choice.h"
#include "trireme/input/corpus.h"
#include "trireme/train/config/schema.h"
#include "trireme/train/plan/kernel_speeds.h"

namespace trireme::inline v0::cli {

/// The machine: `ranks` ranks of at most `limit` bytes each, of which `ranks_here` share this host's
/// cores. Without `speeds`, no times are predicted.
struct FitPlace {
  int ranks = 1, ranks_here = 1;
  std::int64_t limit = 0;
  train::KernelSpeeds* speeds = nullptr;
};

/// Whether there is a choice of layouts: not with local_sgd and its relatives, whose parallel.sync
/// decides the bits, and not with servers.
bool can_fit(const train::Settings& settings);

/// Varies the keys that do not change the identity: parallel.sync (with parallel.shard for hybrid),
/// train.lanes (1 on a device) and memory.recompute; but keeps values from the command line and the
/// environment. `micro` replaces batch.micro, which is part of the identity. Order: least
/// communication first, then most lanes, then least recomputation. More recomputation is added only
/// while less is not predicted to fit into 90 % of the limit. Throws ConfigError unless can_fit().
std::vector<FitCandidate> fit_candidates(const config::Config& config,
                                         const train::Settings& settings,
                                         const input::Corpus& corpus, const FitPlace& place,
                                         std::int64_t micro);

/// For a new job where nothing fits: the divisors of batch.global below batch.micro, largest first.
std::vector<std::int64_t> smaller_micro_batches(const train::Settings& settings);

struct MemoryLeft {
  std::int64_t bytes = 0;
  std::string reason;  // "memory.limit", "17.2 GB are left on this machine"
};
/// Memory that this machine and this process's control group have left; 0 = not known.
MemoryLeft memory_of_host();
/// Bytes that a rank may take, and why: memory.limit, or its share of memory_of_host(), or if it
/// trains on a device, its share of that device's memory. No reason: not known. `shared` bytes are
/// in the host's memory once for its `ranks` ranks.
MemoryLeft memory_for_a_rank(const train::Settings& settings, int ranks, std::int64_t shared);

}  // namespace trireme::inline v0::cli
