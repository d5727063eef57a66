// Checks of ServerOptions (sync/options.h).
#pragma once

#include "trireme/sync/options.h"

namespace trireme::inline v0 {

/// ConfigError unless each shard can have as many copies.
void check_replicas(int replicas, int servers);
/// ConfigError, with the reason, unless the numbers go together.
void check_server_options(const ServerOptions& options, int workers, int servers);

}  // namespace trireme::inline v0
