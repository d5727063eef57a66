// Where weights are: the newest checkpoint's model.safetensors, verified.
#pragma once

#include <string>

namespace trireme {
inline namespace v0 {
namespace cli {

/// `place` is a run's folder, a Checkpointer's, a checkpoint's own or a .safetensors file. Throws
/// ConfigError where it is none, CheckpointError where the checkpoint is damaged.
std::string model_file(const std::string& place);

}  // namespace cli
}  // namespace v0
}  // namespace trireme
