// identity_key: a configuration key whose value is part of a run's identity (docs/numerics.md).
#pragma once

#include "trireme/base/config/config.h"

namespace trireme::inline v0::train {

inline config::Key identity_key(config::Key key) {
  key.identity = true;
  return key;
}

}  // namespace trireme::inline v0::train
