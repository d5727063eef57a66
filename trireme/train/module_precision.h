// Modules that were written for fp32, trained in another precision.
#pragma once

#include <string>

#include "trireme/models/block.h"

namespace trireme {
inline namespace v0 {
namespace train {

/// The same blocks. fp64: floating parameters and buffers are widened when a block is built. bf16
/// and fp16: a block without parameters of that type of its own runs forward under Autocast, with
/// fp32 weights (Micikevicius et al. 2018, arXiv:1710.03740). fp32: as they are.
models::Blocks in_precision(const models::Blocks& model, const std::string& precision);

}  // namespace train
}  // namespace v0
}  // namespace trireme
