// Makes named tensors equal on all ranks, and checks that ranks have equal settings and equal
// gradients. All are collective.
#pragma once

#include <ATen/core/Tensor.h>

#include <span>
#include <string>
#include <utility>
#include <vector>

#include "trireme/comm/communicator.h"
#include "trireme/optim/owned_slice.h"

namespace trireme::inline v0::parallel {

using NamedTensors = std::vector<std::pair<std::string, at::Tensor>>;

/// Copies rank 0's content to all ranks, and verifies it. MismatchError if a rank has other
/// tensors: count, names, types, shapes or requires_grad.
void replicate(comm::Communicator& world, const NamedTensors& tensors, const std::string& host);
/// MismatchError if a rank's content differs from rank 0's, by hash.
void verify_replicas(comm::Communicator& world, const NamedTensors& tensors,
                     const std::string& host);
/// The facts of a rank on which its update by given gradients depends.
struct RankText {
  std::string processor = {};  // instructions and libraries (tensor/processor.h); empty: any
  std::string settings = {};   // options and optimizer
};
/// MismatchError naming a rank whose texts differ from rank 0's; the message has both.
void require_equal_ranks(comm::Communicator& world, const RankText& mine, const std::string& host);
/// For ranks that run a block together. All pass the same slices of parameters that each holds
/// whole. Their gradients are equal bit for bit if the block gets its layers from its LayerFactory.
/// Otherwise they would train different models: ConfigError on all ranks, naming the first
/// parameter whose gradients differ.
void require_equal_gradients(comm::Communicator& group, std::span<const optim::OwnedSlice> slices);

}  // namespace trireme::inline v0::parallel
