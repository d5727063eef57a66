// Finds the weights of a run: those of its newest checkpoint.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "trireme/base/weights_hash.h"
#include "trireme/cli/checkpoints.h"

namespace trireme::inline v0::cli {

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

/// weights_hash() of all, of which one tensor is in memory at a time.
std::string hash_of(const ModelWeights& weights);

}  // namespace trireme::inline v0::cli
