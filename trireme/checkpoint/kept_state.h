// KeptState: the training state that a process keeps in memory from one epoch of an elastic job to the
// next, and how the new ranks take theirs from it (docs/design/040-elastic-jobs.md).
//
// A process may keep several steps. The ranks restore the newest one of which together they have every
// element that the new ranks need, each from one that has it. Not thread safe.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "trireme/checkpoint/shards.h"
#include "trireme/job/job_changes.h"

namespace trireme::inline v0::checkpoint {

/// Copies, in the host's memory, of one process's shards after `steps_done` steps.
struct KeptStep {
  std::int64_t steps_done = 0;
  std::map<std::string, std::string> metadata;             // by part
  std::vector<std::pair<std::string, NamedShard>> shards;  // with their parts
};

struct KeptState final : JobChanges::Kept {
  /// One entry per step.
  std::vector<KeptStep> steps;
  /// Joins what is kept of the same step.
  void add(KeptStep step);
};

/// Copies what the parts hold now. `metadata` is that of each part after `steps_done` steps.
KeptStep keep(const Parts& parts, std::int64_t steps_done,
              std::map<std::string, std::string> metadata);

/// Collective. Fills every shard of every part, calls restored(), and returns the number of steps
/// done, which is at least `least`; nullopt, without effect, if no such step is there with all that is
/// needed. Throws the communicator's errors, after which the parts are undefined.
std::optional<std::int64_t> restore_kept(const Parts& parts, const KeptState* kept,
                                         std::int64_t least, comm::Communicator& world);

}  // namespace trireme::inline v0::checkpoint
