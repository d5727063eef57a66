// Finds the checkpoints in a folder. A run of `trireme train` has them below checkpoint/, a
// Checkpointer of a user's training loop in the folder itself. Looks at file names only;
// storage/folder.h verifies their content.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace trireme::inline v0::cli {

struct FoundCheckpoint {
  std::string directory;  // the folder that a Checkpointer writes to
  std::string path;       // the checkpoint: directory/step-00000500
  std::int64_t step = 0;  // steps done
  bool named = false;     // `place` is this checkpoint, not a folder of several
};

/// The newest checkpoint at `place`: a run's folder, a Checkpointer's folder, or a checkpoint.
std::optional<FoundCheckpoint> find_checkpoint(const std::string& place);

}  // namespace trireme::inline v0::cli
