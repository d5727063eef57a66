// The end of a run, read from its folder, for processes that start when the run's job may be gone.
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
/// Whether the run has come to its end. nullopt: it has steps to do, or there is no run.
std::optional<RunEnd> run_end(const RunFolder& folder);

/// A condition that holds once the run has been at its end for its `timeout`, from the first call
/// on: another job that continues the run may need that long. Cheap to ask often; one thread.
std::function<bool()> stays_ended(const RunFolder& folder);

/// The number of ranks of a resumed run unless the user gives one: that of the run's last start, by
/// its events, or of the last `trireme resize` of its elastic job. Lost ranks count, too. nullopt:
/// not known.
std::optional<int> former_ranks(const RunFolder& folder);

}  // namespace trireme::inline v0::train
