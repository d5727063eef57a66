// Checks a folder for memory.offload and memory.offload_activations, when files are made and
// already when a job is planned. Makes nothing.
#pragma once

#include <string>

namespace trireme::inline v0::memory {

/// Throws ConfigError if `folder`, the value of `key`, is missing or cannot be written to.
void check_offload_folder(const std::string& key, const std::string& folder);

}  // namespace trireme::inline v0::memory
