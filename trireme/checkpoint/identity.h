// The identity of a job: lines "KEY = value" of all that decides the bits of its weights.
#pragma once

#include <string>
#include <vector>

namespace trireme::inline v0::checkpoint {

/// Throws CheckpointError with the lines that differ, other than those of `changed` keys, if both
/// identities are known. `path`: of the checkpoint.
void compare_identity(const std::string& saved, const std::string& own,
                      const std::vector<std::string>& changed, const std::string& path);

}  // namespace trireme::inline v0::checkpoint
