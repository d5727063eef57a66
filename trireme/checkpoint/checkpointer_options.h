// Checks the options of a Checkpointer, finds their storage and patience, and compares the identity
// of the job with a checkpoint's.
#pragma once

#include <string>

#include "trireme/checkpoint/checkpointer.h"
#include "trireme/storage/storage.h"

namespace trireme::inline v0::checkpoint {

/// How long a storage may fail: `given`, unless it is the default and the environment says
/// otherwise. Throws ConfigError if the environment has no number of seconds.
Duration patience_of(Duration given);
/// The place of the checkpoints: `directory` in the options' storage; without one, the storage that
/// `directory` names.
storage::Location location_of(const std::string& directory, const CheckpointerOptions& options);
/// Throws ConfigError for numbers out of range, and for an identity that is not UTF-8.
void check(const CheckpointerOptions& options);
/// Throws CheckpointError with the lines in which `saved`, the identity of the checkpoint `path`,
/// differs from that of the options. Ignores `changed` keys. An empty identity equals any other.
void compare_identity(const std::string& saved, const CheckpointerOptions& options,
                      const std::string& path);

}  // namespace trireme::inline v0::checkpoint
