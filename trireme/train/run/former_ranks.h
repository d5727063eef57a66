// former_ranks(): how many ranks a resumed run has unless the user says otherwise. No state; thread
// safe.
#pragma once

#include <optional>

#include "trireme/train/run/run_folder.h"

namespace trireme::inline v0::train {

/// The number of ranks that the run in `folder` was to have at its end: of its last start, as its
/// events say, or of the last `trireme resize` of its elastic job. Ranks that the job had lost count,
/// too. nullopt: nothing says it.
std::optional<int> former_ranks(const RunFolder& folder);

}  // namespace trireme::inline v0::train
