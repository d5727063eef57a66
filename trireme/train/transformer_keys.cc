#include "trireme/train/transformer_keys.h"

namespace trireme {
inline namespace v0 {
namespace train {
namespace {

config::Value whole(std::int64_t value) { return value; }

}  // namespace

std::vector<config::Key> transformer_keys() {
  return {{"model.layers", whole(4), "Transformer layers.", 1, 1e4, {}, true},
          {"model.heads", whole(4), "Attention heads; divides the width.", 1, 1e4, {}, true},
          {"model.width", whole(128), "Channels of the residual stream.", 1, 1e6, {}, true},
          {"model.block", whole(64), "Sequence length, in tokens.", 1, 1e6, {}, true},
          {"model.dropout",
           0.0,
           "Share of the embeddings' and of each layer's additions that is dropped in training.",
           0,
           0.9,
           {},
           true}};
}

}  // namespace train
}  // namespace v0
}  // namespace trireme
