// The keys of a training job that do not depend on its model: data, batch, training, optimizer,
// layout, checkpoints.
#pragma once

#include "trireme/base/config.h"

namespace trireme {
inline namespace v0 {
namespace train {

/// Their order is that of --help-config, of config.toml and of the identity.
void add_job_keys(config::Schema& schema);

}  // namespace train
}  // namespace v0
}  // namespace trireme
