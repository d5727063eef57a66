// The keys that transformers over text have in common. Internal to train.
#pragma once

#include <vector>

#include "trireme/base/config.h"

namespace trireme {
inline namespace v0 {
namespace train {

/// model.layers, heads, width, block and dropout, and those of text (data_source.h).
std::vector<config::Key> transformer_keys();

}  // namespace train
}  // namespace v0
}  // namespace trireme
