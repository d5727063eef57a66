// What a resumed run has otherwise than the run that it goes on with: said, recorded, and refused
// where it would be another training that nobody asked for.
//
// What decides the bits (the identity) may change on purpose alone: `--changed KEY`. The change is
// written behind the value's source in config.toml, "… changed after step 20 (was 0.001)", and is
// taken again where the run goes on from that step once more. No state; not thread safe.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "trireme/base/config.h"
#include "trireme/train/run_folder.h"
#include "trireme/train/schema.h"

namespace trireme {
inline namespace v0 {
namespace train {

struct Change {
  std::string key, before, now;  // values as TOML writes them
  std::string source;            // of the new one
};

/// Of the checkpoints of a run on data with this hash, whose folder is locked by who started the
/// ranks; `changed`: recorded_changes().
CheckpointerOptions checkpoint_options(const Settings& settings, const std::string& data_hash,
                                       std::vector<std::string> changed = {});

/// The values of `config` that the run in `folder` had otherwise. Those that decide bits must be
/// among `on_purpose` (names of keys) and are recorded in `config`. CheckpointError names the
/// others; ConfigError for a name that is no key.
std::vector<Change> check_changes(config::Config& config, const std::string& data_hash,
                                  const RunFolder& folder,
                                  const std::vector<std::string>& on_purpose);

/// Lines of the identity whose change check_changes() has recorded in the run's configuration.
std::vector<std::string> recorded_changes(const RunFolder& folder);

/// A checkpoint's hashes hold for whatever somebody has written with them. CheckpointError where
/// the counts of a run after `step` steps cannot be: batches read, and the updates that the
/// training state's metadata has.
void check_counts(std::int64_t step, std::int64_t batches, const std::string& training_metadata);

}  // namespace train
}  // namespace v0
}  // namespace trireme
