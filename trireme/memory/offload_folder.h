// Whether a folder can take what memory.offload and memory.offload_activations put into files: one
// check for the files and for whoever plans a job. Makes nothing.
#pragma once

#include <string>

namespace trireme {
inline namespace v0 {
namespace memory {

/// Throws ConfigError where `folder`, which `key` names, is no folder or cannot be written to.
void check_offload_folder(const std::string& key, const std::string& folder);

}  // namespace memory
}  // namespace v0
}  // namespace trireme
