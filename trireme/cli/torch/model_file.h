// Finds the weights of a run: the newest checkpoint's model.safetensors, verified.
#pragma once

#include <string>

namespace trireme::inline v0::cli {

/// `place` is the folder of a run, a Checkpointer or one checkpoint, or a .safetensors file. Throws
/// ConfigError if it is none of these, and CheckpointError if the checkpoint is damaged.
std::string model_file(const std::string& place);

}  // namespace trireme::inline v0::cli
