// Checks the options of a Checkpointer, and finds the storage and the patience that they ask for. Compares
// the identity of the job, lines "KEY = value" of all that decides the bits of its weights, with a
// checkpoint's.
#pragma once

#include <string>

#include "trireme/checkpoint/checkpointer.h"
#include "trireme/storage/storage.h"

namespace trireme::inline v0::checkpoint {

/// How long a storage may fail: `given`, or what the environment says in place of the default.
Duration patience_of(Duration given);
/// The place of the checkpoints: `directory` in the options' storage; without one, the storage that
/// `directory` names.
storage::Location location_of(const std::string& directory, const CheckpointerOptions& options);
/// Throws ConfigError for numbers that cannot be, and for an identity that is no UTF-8.
void check(const CheckpointerOptions& options);
/// Throws CheckpointError with the lines in which `saved`, the identity of the checkpoint `path`, differs
/// from the options' one, other than those of `changed` keys, if both are known.
void compare_identity(const std::string& saved, const CheckpointerOptions& options,
                      const std::string& path);

}  // namespace trireme::inline v0::checkpoint
