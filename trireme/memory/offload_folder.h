// The values of memory.offload and memory.offload_activations: a folder, or kOnHost. A folder is
// checked when a job is planned and again when files are made.
#pragma once

#include <string>

namespace trireme::inline v0::memory {

/// The host's pinned memory, instead of a device's memory.
inline constexpr const char* kOnHost = "host";

/// Throws ConfigError if `folder`, the value of `key`, is missing or cannot be written to.
void check_offload_folder(const std::string& key, const std::string& folder);

}  // namespace trireme::inline v0::memory
