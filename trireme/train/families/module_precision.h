// Trains modules that were written for fp32 in another precision.
#pragma once

#include <string>

#include "trireme/models/block.h"

namespace trireme::inline v0::train {

/// The same blocks in `precision`. fp32: unchanged. fp64: floating-point parameters, buffers and
/// inputs become fp64. bf16 and fp16: a block runs forward under Autocast with fp32 weights
/// (Micikevicius et al. 2018, arXiv:1710.03740), unless it already has parameters of that type.
models::Blocks in_precision(const models::Blocks& model, const std::string& precision);

}  // namespace trireme::inline v0::train
