#include "trireme/train/families/transformer_keys.h"

namespace trireme::inline v0::train {
namespace {

config::Value whole_number(std::int64_t value) { return value; }

}  // namespace

std::vector<config::Key> transformer_keys() {
  return {{"model.layers", whole_number(4), "Transformer layers.", 1, 1e4, {}, true},
          {"model.heads", whole_number(4), "Attention heads; divides the width.", 1, 1e4, {}, true},
          {"model.width", whole_number(128), "Channels of the residual stream.", 1, 1e6, {}, true},
          {"model.block", whole_number(64), "Sequence length, in tokens.", 1, 1e6, {}, true},
          {"model.dropout",
           0.0,
           "Share of the embeddings' and of each layer's additions that is dropped in training.",
           0,
           0.9,
           {},
           true}};
}

}  // namespace trireme::inline v0::train
