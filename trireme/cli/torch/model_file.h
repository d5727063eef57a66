// Finds the weights of a run: the newest checkpoint's model.safetensors, verified.
#pragma once

#include <string>

#include "trireme/format/mapped_file.h"

namespace trireme::inline v0::cli {

/// `place` is the folder of a run, a Checkpointer or one checkpoint, also as file:// or s3://, or a
/// .safetensors file of this machine. Throws ConfigError if it is none of these, and CheckpointError
/// if the checkpoint is damaged.
format::MappedFile model_file(const std::string& place);

}  // namespace trireme::inline v0::cli
