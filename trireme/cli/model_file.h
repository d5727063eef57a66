// Where a run's weights are: the newest checkpoint's model.safetensors, verified.
#pragma once

#include <string>

namespace trireme {
inline namespace v0 {
namespace cli {

/// `place` is a run's folder or a .safetensors file. Throws ConfigError where it is neither,
/// CheckpointError where the checkpoint is damaged.
std::string model_file(const std::string& place);

}  // namespace cli
}  // namespace v0
}  // namespace trireme
