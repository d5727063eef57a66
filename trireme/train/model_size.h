// How large a model is that no formula is known of: its blocks are built one after the other, each
// run forward over a micro-batch of zeros, and what LibTorch's allocator then holds is counted; a
// second pass is timed, since operations cannot be. At most one block's weights are there at a
// time.
#pragma once

#include <cstdint>

#include "trireme/models/block.h"
#include "trireme/train/model_family.h"

namespace trireme {
inline namespace v0 {
namespace train {

/// Over `sequences` sequences of `block` tokens, with the loss of a language model at the end.
/// Throws ConfigError where the model does not give logits [sequences, block, 256]; what a block
/// throws passes through. LibTorch's default generator is left as it was.
ModelFigures measure_size(const models::Blocks& model, std::int64_t sequences, std::int64_t block);

}  // namespace train
}  // namespace v0
}  // namespace trireme
