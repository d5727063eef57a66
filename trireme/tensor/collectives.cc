#include "trireme/tensor/collectives.h"

#include "trireme/tensor/convert.h"

namespace trireme::inline v0 {

Work async::all_reduce(comm::Communicator& communicator, const at::Tensor& tensor, ReduceOp op,
                       const comm::OpOptions& options) {
  return communicator.all_reduce(tensor::to_buffer(tensor), op, options);
}
Work async::broadcast(comm::Communicator& communicator, const at::Tensor& tensor, int root,
                      const comm::OpOptions& options) {
  return communicator.broadcast(tensor::to_buffer(tensor), root, options);
}
void all_reduce(comm::Communicator& communicator, const at::Tensor& tensor, ReduceOp op,
                const comm::OpOptions& options) {
  async::all_reduce(communicator, tensor, op, options).wait();
}
void broadcast(comm::Communicator& communicator, const at::Tensor& tensor, int root,
               const comm::OpOptions& options) {
  async::broadcast(communicator, tensor, root, options).wait();
}

}  // namespace trireme::inline v0
