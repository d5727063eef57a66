// The end of a run, as its folder says: for processes that come when the job of the run may be
// gone. No state; thread safe.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>

#include "trireme/base/clock.h"
#include "trireme/train/run/run_folder.h"

namespace trireme::inline v0::train {

struct RunEnd {
  std::int64_t step = 0;  // the last one, of which there is a checkpoint
  bool early = false;     // by train.patience
  Duration timeout{};     // key `timeout` of the run
};
/// Whether the run has come to its end. nullopt: it has steps to do, or there is none.
std::optional<RunEnd> run_end(const RunFolder& folder);

/// A condition that holds once the run has been at its end for its `timeout`, from the first call
/// on. So long another job may need that goes on with more steps. Cheap enough to be asked often.
std::function<bool()> stays_ended(const RunFolder& folder);

/// How many ranks a resumed run has unless the user says otherwise: the number that it was to have
/// at its end. This is that of its last start, as its events say, or of the last `trireme resize`
/// of its elastic job. Ranks that the job had lost count, too. nullopt: nothing says it.
std::optional<int> former_ranks(const RunFolder& folder);

}  // namespace trireme::inline v0::train
