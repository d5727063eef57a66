// A LayerFactory that makes whole layers, as local_layers() does, and records which parts of them
// ranks could share. For models of unknown shape. Internal to train.
#pragma once

#include <memory>

#include "trireme/models/layer_factory.h"
#include "trireme/strategy/option_check.h"

namespace trireme::inline v0::train {

/// The result adds requested layers to `shape`, which must outlive it. Sequences have `positions`.
std::shared_ptr<const models::LayerFactory> recorded_layers(parallel::ModelShape& shape,
                                                            std::int64_t positions);

}  // namespace trireme::inline v0::train
