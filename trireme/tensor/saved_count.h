// Reads a count from a checkpoint's metadata. The file's hash detects accidental changes only, so
// the value is checked here.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>

namespace trireme::inline v0 {

/// The number of steps or batches under `key`. CheckpointError if it is missing, not an integer,
/// negative, or beyond 10^15, more than any run reaches.
std::int64_t saved_count(const nlohmann::json& saved, const char* key);

}  // namespace trireme::inline v0
