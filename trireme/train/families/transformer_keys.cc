#include "trireme/train/families/transformer_keys.h"

#include "trireme/train/config/identity_key.h"

namespace trireme::inline v0::train {

std::vector<config::Key> transformer_keys() {
  return {
      identity_key({"model.layers", std::int64_t{4}, "Transformer layers.", 1, 1e4}),
      identity_key({"model.heads", std::int64_t{4}, "Attention heads; divides the width.", 1, 1e4}),
      identity_key({"model.width", std::int64_t{128}, "Channels of the residual stream.", 1, 1e6}),
      identity_key({"model.block", std::int64_t{64}, "Sequence length, in tokens.", 1, 1e6}),
      identity_key(
          {"model.dropout", 0.0,
           "Share of the embeddings' and of each layer's additions that is dropped in training.", 0,
           0.9})};
}

}  // namespace trireme::inline v0::train
