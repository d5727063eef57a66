// Which ranks see the storage that rank 0 writes to: rank 0 writes a mark there, and the others look
// for it. A folder that is not shared, or a host without a network, is found so.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "trireme/checkpoint/folder.h"
#include "trireme/job/job.h"

namespace trireme::inline v0::checkpoint {

/// Collective. By rank; rank 0 says in a line what was found. Nullopt: rank 0 could not write. `place`
/// names the storage.
std::optional<std::vector<bool>> ranks_that_see(Job& job, CheckpointFolder& folder,
                                                const std::string& place);

}  // namespace trireme::inline v0::checkpoint
