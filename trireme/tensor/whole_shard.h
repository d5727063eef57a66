// whole_shard(): a tensor of any strides as a NamedShard, whose memory must be contiguous.
#pragma once

#include <string>

#include "trireme/tensor/state.h"

namespace trireme::inline v0::tensor {

/// target.copy_(from), also for an expanded `target`, of whose repeated elements one is written.
void copy_elements(at::Tensor target, at::Tensor from);

/// All of `tensor`. Shares its memory if that is contiguous; otherwise `local` is a copy, and load()
/// writes to the tensor. load() throws CheckpointError for a tensor of another shape.
NamedShard whole_shard(const std::string& name, const at::Tensor& tensor);

}  // namespace trireme::inline v0::tensor
