// Reads and checks numbers of a checkpoint's metadata: its hash detects accidental changes only.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>

namespace trireme::inline v0 {

/// The number of steps or batches under `key`. CheckpointError if it is missing, not an integer,
/// negative, or beyond 10^15, more than any run reaches.
std::int64_t saved_count(const nlohmann::json& saved, const char* key);
/// Throws CheckpointError with both values unless the integer under `key` is `own`. `whose` names
/// the part that wrote the metadata, such as "input".
void require_saved(const nlohmann::json& saved, const char* key, std::int64_t own,
                   const std::string& whose);

}  // namespace trireme::inline v0
