// The collectives of comm/collectives.h over at::Tensor, in place. CheckFailure if a tensor is not
// contiguous. A device's tensors need nccl, or set_up_device() (determinism.h) before the call.
#pragma once

#include <ATen/core/Tensor.h>

#include "trireme/comm/communicator.h"

namespace trireme::inline v0 {
namespace async {
Work all_reduce(comm::Communicator& communicator, const at::Tensor& tensor, ReduceOp op,
                const comm::OpOptions& options = {});
Work broadcast(comm::Communicator& communicator, const at::Tensor& tensor, int root,
               const comm::OpOptions& options = {});
}  // namespace async

void all_reduce(comm::Communicator& communicator, const at::Tensor& tensor, ReduceOp op,
                const comm::OpOptions& options = {});
void broadcast(comm::Communicator& communicator, const at::Tensor& tensor, int root,
               const comm::OpOptions& options = {});

}  // namespace trireme::inline v0
