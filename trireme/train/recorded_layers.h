// RecordedLayers: whole layers, as local_layers() makes them, and what ranks could share of them:
// for a model of whose shape nothing is known. Internal to train.
#pragma once

#include <memory>

#include "trireme/models/layer_factory.h"
#include "trireme/parallel/option_check.h"

namespace trireme {
inline namespace v0 {
namespace train {

/// What blocks ask the result for is added to `shape`, which outlives it. Sequences have
/// `positions`.
std::shared_ptr<const models::LayerFactory> recorded_layers(parallel::ModelShape& shape,
                                                            std::int64_t positions);

}  // namespace train
}  // namespace v0
}  // namespace trireme
