// The collectives of comm/collectives.h over at::Tensor: contiguous CPU tensors, in place.
// CheckFailure if a tensor is not contiguous.
#pragma once

#include <ATen/core/Tensor.h>

#include "trireme/comm/communicator.h"
#include "trireme/tensor/convert.h"

namespace trireme::inline v0 {
namespace async {
inline Work all_reduce(comm::Communicator& communicator, const at::Tensor& tensor, ReduceOp op,
                       const comm::OpOptions& options = {}) {
  return communicator.all_reduce(tensor::to_buffer(tensor), op, options);
}
inline Work broadcast(comm::Communicator& communicator, const at::Tensor& tensor, int root,
                      const comm::OpOptions& options = {}) {
  return communicator.broadcast(tensor::to_buffer(tensor), root, options);
}
}  // namespace async

inline void all_reduce(comm::Communicator& communicator, const at::Tensor& tensor, ReduceOp op,
                       const comm::OpOptions& options = {}) {
  async::all_reduce(communicator, tensor, op, options).wait();
}
inline void broadcast(comm::Communicator& communicator, const at::Tensor& tensor, int root,
                      const comm::OpOptions& options = {}) {
  async::broadcast(communicator, tensor, root, options).wait();
}

}  // namespace trireme::inline v0
