// The keys that all transformers over text have. Internal to train.
#pragma once

#include <vector>

#include "trireme/base/config/config.h"

namespace trireme::inline v0::train {

/// model.layers, heads, width, block and dropout.
std::vector<config::Key> transformer_keys();

}  // namespace trireme::inline v0::train
