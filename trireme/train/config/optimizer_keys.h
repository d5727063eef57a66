// The keys of the optimizer, optimizer.*, and of the learning rate, train.*. Internal to config/.
#pragma once

#include "trireme/base/config/config.h"

namespace trireme::inline v0::train {

/// `key`, whose value becomes part of a run's identity (docs/numerics.md).
inline config::Key identity_key(config::Key key) {
  key.identity = true;
  return key;
}

void add_optimizer_keys(config::Schema& schema);
void add_schedule_keys(config::Schema& schema);

}  // namespace trireme::inline v0::train
