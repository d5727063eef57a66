// Where a folder's checkpoints are: a run of `trireme train` has them below checkpoint/, a
// Checkpointer of one's own loop in the folder itself. Reads names alone; what a checkpoint holds
// is verified by checkpoint/folder.h.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace trireme {
inline namespace v0 {
namespace command {

struct FoundCheckpoint {
  std::string directory;  // that a Checkpointer writes to
  std::string path;       // of the checkpoint itself: directory/step-00000500
  std::int64_t step = 0;  // steps done
  bool named = false;     // `place` is this checkpoint, not a folder of several
  std::string model() const { return path + "/model.safetensors"; }
};

/// The newest checkpoint at `place`: a run's folder, a Checkpointer's, or a checkpoint's own.
std::optional<FoundCheckpoint> find_checkpoint(const std::string& place);

}  // namespace command
}  // namespace v0
}  // namespace trireme
