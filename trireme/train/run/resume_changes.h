// Finds the values that a resumed run changes, records the changes, and refuses those that would
// make it another training by accident.
//
// Values that decide the bits (the identity) change only on purpose: `--changed KEY`. Such a change
// is written after the value's source in config.toml, "... changed after step 20 (was 0.001)", and
// is accepted again if the run resumes from that step once more. No state; not thread safe.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "trireme/base/config/config.h"
#include "trireme/input/batches.h"
#include "trireme/observe/events.h"
#include "trireme/train/config/schema.h"
#include "trireme/train/run/run_folder.h"

namespace trireme::inline v0::train {

struct Change {
  std::string key, before, now;  // values as TOML writes them
  std::string source;            // of the new value
};

/// The event "changed" of a run whose last step is `step`.
observe::Event event_of(const Change& change, long step);

/// Options for the checkpoints of a run on data with this hash. They do not lock the folder, since
/// the process that started the ranks has locked it, by `claim`. `changed`: recorded_changes().
CheckpointerOptions checkpoint_options(const Settings& settings, const std::string& data_hash,
                                       std::vector<std::string> changed = {},
                                       std::shared_ptr<const storage::Claim> claim = nullptr);

/// Returns the values of `config` that differ from the run in `folder`. Those that decide bits must
/// be in `on_purpose` (names of keys) and are recorded in `config`. Throws CheckpointError naming
/// the others, and ConfigError if a name is not a key.
std::vector<Change> check_changes(config::Config& config, const std::string& data_hash,
                                  const RunFolder& folder,
                                  const std::vector<std::string>& on_purpose);

/// Keys of the identity whose change check_changes() has recorded in the run's configuration.
std::vector<std::string> recorded_changes(const RunFolder& folder);

/// The batches of a resumed run whose data, batch size or seed were changed on purpose, or whose
/// workers train on their own, each on a part of a batch that depends on their number. Restores
/// only the saved position: the run continues with that batch of the new data. Keeps a reference.
class ChangedInput final : public Saveable {
 public:
  explicit ChangedInput(Batches& batches) : batches_(batches) {}
  std::vector<NamedShard> state() override { return batches_.state(); }
  std::string metadata() const override { return batches_.metadata(); }
  void restored(const std::string& metadata) override;

 private:
  Batches& batches_;
};

/// Checks the counts of a checkpoint after `step` steps: `batches` read, and the optimizer steps in
/// the metadata of the training state. Throws CheckpointError if they are impossible; hashes do not
/// find this if another program wrote the checkpoint.
void check_counts(std::int64_t step, std::int64_t batches, const std::string& training_metadata);

}  // namespace trireme::inline v0::train
