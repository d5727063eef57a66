// How large a model is that no formula is known of: its blocks are built one after the other, each
// run forward over a micro-batch, and what LibTorch's allocator then holds is counted; a second
// pass is timed, since operations cannot be. At most one block's weights are there at a time.
#pragma once

#include <string>

#include "trireme/models/block.h"
#include "trireme/train/model_family.h"

namespace trireme {
inline namespace v0 {
namespace train {

/// Over this micro-batch, with the loss at the end. Throws ConfigError where LibTorch refuses what
/// a block or the loss is given, naming it and the shapes. LibTorch's default generator is left as
/// it was.
ModelFigures measure_size(const models::Blocks& model, const MicroBatch& micro, const Loss& loss);
/// "[4, 64, 256], [4]", "nothing".
std::string describe_shapes(const models::Value& value);

}  // namespace train
}  // namespace v0
}  // namespace trireme
