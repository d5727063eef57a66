// Finds the checkpoints of a run, wherever it keeps them. A run of `trireme train` has them in
// checkpoint/ or at its checkpoint.path, a Checkpointer of a user's training loop in the folder itself.
// Looks at names only; storage/folder.h verifies content.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "trireme/storage/folder.h"

namespace trireme::inline v0::cli {

struct FoundCheckpoint {
  storage::CheckpointFolder folder;  // the one that a Checkpointer writes to
  std::int64_t step = 0;             // steps done
  bool named = false;                // `place` is this checkpoint, not a folder of several
  std::string path() const { return folder.path_of(step); }
};

/// The newest checkpoint at `place`: a run's folder, a Checkpointer's folder or a checkpoint, also as
/// file:// or s3://. nullopt if there is none.
std::optional<FoundCheckpoint> find_checkpoint(const std::string& place);

}  // namespace trireme::inline v0::cli
