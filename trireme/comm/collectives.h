// The free functions of the public face: collectives over spans (and anything contiguous).
//
//     trireme::all_reduce(job.world(), x, trireme::Sum);                       // blocks
//     trireme::Work work = trireme::async::all_reduce(job.host(), x, trireme::Mean);
//
// The blocking forms wait within the job's deadline and throw; the others return a Work, and x must
// stay valid until it is done. Errors and thread safety are Communicator's.
#pragma once

#include <ranges>
#include <span>

#include "trireme/comm/communicator.h"

namespace trireme {
inline namespace v0 {

/// A writable contiguous range of a type that crosses ranks.
template <class R>
concept Communicable = std::ranges::contiguous_range<R> && std::ranges::sized_range<R> && requires {
  DTypeOf<std::ranges::range_value_t<R>>::value;
};

template <Communicable R>
Buffer buffer_of(R&& values) {
  return Buffer::of(std::span(std::ranges::data(values), std::ranges::size(values)));
}

namespace async {
template <Communicable R>
Work all_reduce(comm::Communicator& communicator, R&& values, ReduceOp op,
                const comm::OpOptions& options = {}) {
  return communicator.all_reduce(buffer_of(values), op, options);
}
template <Communicable R>
Work broadcast(comm::Communicator& communicator, R&& values, int root,
               const comm::OpOptions& options = {}) {
  return communicator.broadcast(buffer_of(values), root, options);
}
template <Communicable In, Communicable Out>
Work all_gather(comm::Communicator& communicator, In&& in, Out&& out,
                const comm::OpOptions& options = {}) {
  return communicator.all_gather(buffer_of(in), buffer_of(out), options);
}
template <Communicable In, Communicable Out>
Work reduce_scatter(comm::Communicator& communicator, In&& in, Out&& out, ReduceOp op,
                    const comm::OpOptions& options = {}) {
  return communicator.reduce_scatter(buffer_of(in), buffer_of(out), op, options);
}
}  // namespace async

template <Communicable R>
void all_reduce(comm::Communicator& communicator, R&& values, ReduceOp op,
                const comm::OpOptions& options = {}) {
  async::all_reduce(communicator, values, op, options).wait();
}
template <Communicable R>
void broadcast(comm::Communicator& communicator, R&& values, int root,
               const comm::OpOptions& options = {}) {
  async::broadcast(communicator, values, root, options).wait();
}
template <Communicable In, Communicable Out>
void all_gather(comm::Communicator& communicator, In&& in, Out&& out,
                const comm::OpOptions& options = {}) {
  async::all_gather(communicator, in, out, options).wait();
}
template <Communicable In, Communicable Out>
void reduce_scatter(comm::Communicator& communicator, In&& in, Out&& out, ReduceOp op,
                    const comm::OpOptions& options = {}) {
  async::reduce_scatter(communicator, in, out, op, options).wait();
}
inline void barrier(comm::Communicator& communicator, const comm::OpOptions& options = {}) {
  communicator.barrier(options).wait();
}

}  // namespace v0
}  // namespace trireme
