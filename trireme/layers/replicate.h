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
/// MismatchError naming a rank that computes with other instructions or libraries than rank 0
/// (tensor/processor.h); the message has both. Collective.
void require_equal_processors(comm::Communicator& world, const std::string& mine,
                              const std::string& host);

}  // namespace trireme::inline v0::parallel
