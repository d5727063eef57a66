// Replicate: makes named tensors equal on all ranks, and verifies it.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <utility>
#include <vector>

#include "trireme/comm/communicator.h"

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
/// MismatchError naming a rank whose texts differ from rank 0's; the message has both. Collective.
void require_equal_ranks(comm::Communicator& world, const RankText& mine, const std::string& host);

}  // namespace trireme::inline v0::parallel
