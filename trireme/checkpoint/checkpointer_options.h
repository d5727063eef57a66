// What the options of a Checkpointer mean.
#pragma once

#include <string>

#include "trireme/checkpoint/checkpointer.h"
#include "trireme/checkpoint/storage.h"

namespace trireme::inline v0::checkpoint {

/// How long a storage may fail: `given`, or what the environment says in the place of the default.
Duration patience_of(Duration given);
/// Where the checkpoints are: in the options' storage, or in the one that `directory` names.
Location location_of(const std::string& directory, const CheckpointerOptions& options);
/// Throws ConfigError for numbers that cannot be, and for an identity that is no UTF-8.
void check(const CheckpointerOptions& options);

}  // namespace trireme::inline v0::checkpoint
