// Replicate: makes named tensors equal on all ranks, and proves it.
//
// The ranks first compare names, types and shapes, then rank 0's content is broadcast, then all
// compare hashes. A difference is a MismatchError naming the first tensor and rank. Collective.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <utility>
#include <vector>

#include "trireme/comm/communicator.h"

namespace trireme {
inline namespace v0 {
namespace parallel {

using NamedTensors = std::vector<std::pair<std::string, at::Tensor>>;

void replicate(comm::Communicator& world, const NamedTensors& tensors, const std::string& host);
/// The last part alone: throws MismatchError where a rank's content differs from rank 0's.
void verify_replicas(comm::Communicator& world, const NamedTensors& tensors,
                     const std::string& host);
/// MismatchError naming a rank that computes with other instructions or libraries than rank 0
/// (tensor/processor.h), and both of these. Collective.
void require_equal_processors(comm::Communicator& world, const std::string& mine,
                              const std::string& host);

}  // namespace parallel
}  // namespace v0
}  // namespace trireme
