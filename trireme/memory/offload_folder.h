// The values of memory.offload and memory.offload_activations: a folder, or kOnHost. A folder is
// checked when files are made and already when a job is planned. Makes nothing.
#pragma once

#include <string>

namespace trireme::inline v0::memory {

/// Pinned memory of the host, for what would be in a device's.
inline constexpr const char* kOnHost = "host";

/// Throws ConfigError if `folder`, the value of `key`, is missing or cannot be written to.
void check_offload_folder(const std::string& key, const std::string& folder);

}  // namespace trireme::inline v0::memory
