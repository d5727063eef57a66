// Finds the checkpoints of a run and reads the weights of the newest one. `trireme train` keeps
// them in RUN/checkpoint/ or at checkpoint.path, a Checkpointer of a user's loop in its folder.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "trireme/base/weights_hash.h"
#include "trireme/storage/folder.h"

namespace trireme::inline v0::cli {

struct FoundCheckpoint {
  storage::CheckpointFolder folder;  // to which a Checkpointer writes
  std::int64_t step = 0;             // steps done
  bool named = false;                // `place` is this checkpoint, not a folder of several
  std::string path() const { return folder.path_of(step); }
};

/// The newest checkpoint at `place`: a run's folder, a Checkpointer's folder or a checkpoint, also
/// as file:// or s3://; nullopt if there is none. Looks at names only (storage/checkpoint_reader.h verifies).
std::optional<FoundCheckpoint> find_checkpoint(const std::string& place);

struct ModelWeights {
  std::string path;                   // of the file, or of the checkpoint's model.safetensors
  std::vector<HashedTensor> tensors;  // in the order of a safetensors file; without bytes
  /// Reads one tensor, and verifies it if it is in a checkpoint.
  std::function<std::vector<std::byte>(const HashedTensor&)> read;
  std::function<void()> verify;  // reads the whole checkpoint
};

/// `place` is the folder of a run, a Checkpointer or one checkpoint, also as file:// or s3://, or a
/// .safetensors file of this machine. Throws ConfigError if it is none of these; this, read() and
/// verify() throw CheckpointError if they find damage.
ModelWeights model_weights(const std::string& place);
ModelWeights model_weights(const FoundCheckpoint& found);

/// weights_hash() over all tensors; one of them is in memory at a time.
std::string hash_of(const ModelWeights& weights);

}  // namespace trireme::inline v0::cli
