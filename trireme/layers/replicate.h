// Replicate: makes named tensors equal on all ranks, and verifies it. And checks that what ranks
// compute with, and the gradients that they compute together, are equal. All are collective.
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

void replicate(comm::Communicator& world, const NamedTensors& tensors, const std::string& host);
/// Only the last comparison: MismatchError if a rank's content differs from rank 0's.
void verify_replicas(comm::Communicator& world, const NamedTensors& tensors,
                     const std::string& host);
/// The facts of a rank on which its update by given gradients depends.
struct RankText {
  std::string processor = {};  // instructions and libraries (tensor/processor.h); empty: any
  std::string settings = {};   // options and optimizer
};
/// MismatchError naming a rank whose texts differ from rank 0's; the message has both.
void require_equal_ranks(comm::Communicator& world, const RankText& mine, const std::string& host);
/// For ranks that run a block together: all pass the same slices, of parameters that each of them
/// holds whole, with their own gradients, which are equal bit for bit if the block's layers come
/// from its LayerFactory. ConfigError on all ranks naming the first parameter whose gradients
/// differ: the ranks would train different models.
void require_equal_gradients(comm::Communicator& group, std::span<const optim::OwnedSlice> slices);

}  // namespace trireme::inline v0::parallel
