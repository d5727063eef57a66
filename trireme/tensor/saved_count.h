// A count in a checkpoint's metadata. Its file's hash says that nobody changed it by accident, not
// that it makes sense.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>

namespace trireme {
inline namespace v0 {

/// Steps or batches, under `key` of the object. CheckpointError where it is missing, no whole
/// number, negative, or more than any run comes to (10^15).
std::int64_t saved_count(const nlohmann::json& saved, const char* key);

}  // namespace v0
}  // namespace trireme
