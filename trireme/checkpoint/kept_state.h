// KeptState: the training state that a process keeps in memory from one epoch of an elastic job to
// the next (docs/design/040-elastic-jobs.md).
//
// A process may keep several steps. The ranks restore the newest step for which they have together
// every element that the new ranks need. Not thread safe.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "trireme/checkpoint/shards.h"
#include "trireme/job/job_changes.h"

namespace trireme::inline v0::checkpoint {

using Shards = std::vector<std::pair<std::string, NamedShard>>;  // with their parts
Shards own_shards(const Parts& parts);

/// Copies, in the host's memory, of one process's shards after `steps_done` steps.
struct KeptStep {
  std::int64_t steps_done = 0;
  std::map<std::string, std::string> metadata;  // by part
  Shards shards;
};

struct KeptState final : JobChanges::Kept {
  /// One entry per step.
  std::vector<KeptStep> steps;
  /// Merges the shards with those kept of the same step.
  void add(KeptStep step);
};

/// Copies the parts' own shards. `metadata`: of each part after `steps_done` steps.
KeptStep keep(const Parts& parts, std::int64_t steps_done,
              std::map<std::string, std::string> metadata);

/// Collective. Fills every shard of every part, calls restored(), and returns the number of steps
/// done, which is at least `least`; nullopt, without effect, if no such step is complete. Unless
/// `lossless`, it may then be a step of which tensors are lost that can be left out; rank 0 says so.
/// Throws the communicator's errors, after which the parts are undefined.
std::optional<std::int64_t> restore_kept(const Parts& parts, const KeptState* kept,
                                         std::int64_t least, comm::Communicator& world,
                                         bool lossless = true);

}  // namespace trireme::inline v0::checkpoint
