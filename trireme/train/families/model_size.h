// Measures the size of a model without a formula. Builds one block at a time, runs it forward over
// a micro-batch, and counts the bytes that LibTorch's allocator holds then. Times a second pass,
// since operations cannot be counted. At most one block's weights are in memory at a time.
#pragma once

#include <string>

#include "trireme/models/block.h"
#include "trireme/train/families/model_family.h"

namespace trireme::inline v0::train {

/// Measures over `micro`, with `loss` at the end. Throws ConfigError, naming the block or the loss
/// and its input shapes, if LibTorch refuses them. Restores LibTorch's default generator.
ModelFigures measure_size(const models::Blocks& model, const MicroBatch& micro, const Loss& loss);
/// "[4, 64, 256], [4]", "nothing".
std::string describe_shapes(const models::Value& value);

}  // namespace trireme::inline v0::train
