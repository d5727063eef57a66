// The public free functions: collectives over spans and other contiguous ranges.
//
//     trireme::all_reduce(job.world(), x, trireme::Sum);                       // blocks
//     trireme::Work work = trireme::async::all_reduce(job.host(), x, trireme::Mean);
//
// Each function calls the Communicator method of the same name. The blocking forms wait, within the
// job's deadline, and throw. Those in `async` return a Work, and the buffers must stay valid until
// it is done. Counts, errors and thread safety: see Communicator.
#pragma once

#include <cstddef>
#include <cstdint>
#include <ranges>
#include <span>
#include <vector>

#include "trireme/comm/communicator.h"

namespace trireme::inline v0 {

/// A contiguous range whose elements have a DType.
template <class R>
concept Communicable = std::ranges::contiguous_range<R> && std::ranges::sized_range<R> && requires {
  DTypeOf<std::ranges::range_value_t<R>>::value;
};

Buffer buffer_of(Communicable auto&& values) {
  return Buffer::of(std::span(std::ranges::data(values), std::ranges::size(values)));
}

namespace async {
Work all_reduce(comm::Communicator& communicator, Communicable auto&& values, ReduceOp op,
                const comm::OpOptions& options = {}) {
  return communicator.all_reduce(buffer_of(values), op, options);
}
Work broadcast(comm::Communicator& communicator, Communicable auto&& values, int root,
               const comm::OpOptions& options = {}) {
  return communicator.broadcast(buffer_of(values), root, options);
}
Work all_gather(comm::Communicator& communicator, Communicable auto&& in, Communicable auto&& out,
                const comm::OpOptions& options = {}) {
  return communicator.all_gather(buffer_of(in), buffer_of(out), options);
}
Work reduce_scatter(comm::Communicator& communicator, Communicable auto&& in,
                    Communicable auto&& out, ReduceOp op, const comm::OpOptions& options = {}) {
  return communicator.reduce_scatter(buffer_of(in), buffer_of(out), op, options);
}
Work reduce_scatter_v(comm::Communicator& communicator, Communicable auto&& in,
                      Communicable auto&& out, std::span<const std::size_t> counts, ReduceOp op,
                      const comm::OpOptions& options = {}) {
  return communicator.reduce_scatter_v(buffer_of(in), buffer_of(out), counts, op, options);
}
Work reduce(comm::Communicator& communicator, Communicable auto&& in, Communicable auto&& out,
            ReduceOp op, int root, const comm::OpOptions& options = {}) {
  return communicator.reduce(buffer_of(in), buffer_of(out), op, root, options);
}
Work gather(comm::Communicator& communicator, Communicable auto&& in, Communicable auto&& out,
            int root, const comm::OpOptions& options = {}) {
  return communicator.gather(buffer_of(in), buffer_of(out), root, options);
}
Work gather_v(comm::Communicator& communicator, Communicable auto&& in, Communicable auto&& out,
              std::span<const std::size_t> counts, int root, const comm::OpOptions& options = {}) {
  return communicator.gather_v(buffer_of(in), buffer_of(out), counts, root, options);
}
Work scatter(comm::Communicator& communicator, Communicable auto&& in, Communicable auto&& out,
             int root, const comm::OpOptions& options = {}) {
  return communicator.scatter(buffer_of(in), buffer_of(out), root, options);
}
Work scatter_v(comm::Communicator& communicator, Communicable auto&& in, Communicable auto&& out,
               std::span<const std::size_t> counts, int root, const comm::OpOptions& options = {}) {
  return communicator.scatter_v(buffer_of(in), buffer_of(out), counts, root, options);
}
Work all_gather_v(comm::Communicator& communicator, Communicable auto&& in, Communicable auto&& out,
                  std::span<const std::size_t> counts, const comm::OpOptions& options = {}) {
  return communicator.all_gather_v(buffer_of(in), buffer_of(out), counts, options);
}
Work all_to_all(comm::Communicator& communicator, Communicable auto&& in, Communicable auto&& out,
                const comm::OpOptions& options = {}) {
  return communicator.all_to_all(buffer_of(in), buffer_of(out), options);
}
Work all_to_all_v(comm::Communicator& communicator, Communicable auto&& in, Communicable auto&& out,
                  std::span<const std::size_t> send_counts,
                  std::span<const std::size_t> recv_counts, const comm::OpOptions& options = {}) {
  return communicator.all_to_all_v(buffer_of(in), buffer_of(out), send_counts, recv_counts,
                                   options);
}
inline Work all_reduce_many(comm::Communicator& communicator, std::span<const Buffer> buffers,
                            ReduceOp op, const comm::OpOptions& options = {}) {
  return communicator.all_reduce_many(buffers, op, options);
}
inline Work barrier(comm::Communicator& communicator, const comm::OpOptions& options = {}) {
  return communicator.barrier(options);
}
Work send(comm::Communicator& communicator, Communicable auto&& values, int peer,
          std::uint32_t tag = 0, const comm::OpOptions& options = {}) {
  return communicator.send(buffer_of(values), peer, tag, options);
}
Work recv(comm::Communicator& communicator, Communicable auto&& values, int peer,
          std::uint32_t tag = 0, const comm::OpOptions& options = {}) {
  return communicator.recv(buffer_of(values), peer, tag, options);
}
}  // namespace async

void all_reduce(comm::Communicator& communicator, Communicable auto&& values, ReduceOp op,
                const comm::OpOptions& options = {}) {
  async::all_reduce(communicator, values, op, options).wait();
}
void broadcast(comm::Communicator& communicator, Communicable auto&& values, int root,
               const comm::OpOptions& options = {}) {
  async::broadcast(communicator, values, root, options).wait();
}
void all_gather(comm::Communicator& communicator, Communicable auto&& in, Communicable auto&& out,
                const comm::OpOptions& options = {}) {
  async::all_gather(communicator, in, out, options).wait();
}
void reduce_scatter(comm::Communicator& communicator, Communicable auto&& in,
                    Communicable auto&& out, ReduceOp op, const comm::OpOptions& options = {}) {
  async::reduce_scatter(communicator, in, out, op, options).wait();
}
void reduce_scatter_v(comm::Communicator& communicator, Communicable auto&& in,
                      Communicable auto&& out, std::span<const std::size_t> counts, ReduceOp op,
                      const comm::OpOptions& options = {}) {
  async::reduce_scatter_v(communicator, in, out, counts, op, options).wait();
}
void reduce(comm::Communicator& communicator, Communicable auto&& in, Communicable auto&& out,
            ReduceOp op, int root, const comm::OpOptions& options = {}) {
  async::reduce(communicator, in, out, op, root, options).wait();
}
void gather(comm::Communicator& communicator, Communicable auto&& in, Communicable auto&& out,
            int root, const comm::OpOptions& options = {}) {
  async::gather(communicator, in, out, root, options).wait();
}
void gather_v(comm::Communicator& communicator, Communicable auto&& in, Communicable auto&& out,
              std::span<const std::size_t> counts, int root, const comm::OpOptions& options = {}) {
  async::gather_v(communicator, in, out, counts, root, options).wait();
}
void scatter(comm::Communicator& communicator, Communicable auto&& in, Communicable auto&& out,
             int root, const comm::OpOptions& options = {}) {
  async::scatter(communicator, in, out, root, options).wait();
}
void scatter_v(comm::Communicator& communicator, Communicable auto&& in, Communicable auto&& out,
               std::span<const std::size_t> counts, int root, const comm::OpOptions& options = {}) {
  async::scatter_v(communicator, in, out, counts, root, options).wait();
}
void all_gather_v(comm::Communicator& communicator, Communicable auto&& in, Communicable auto&& out,
                  std::span<const std::size_t> counts, const comm::OpOptions& options = {}) {
  async::all_gather_v(communicator, in, out, counts, options).wait();
}
void all_to_all(comm::Communicator& communicator, Communicable auto&& in, Communicable auto&& out,
                const comm::OpOptions& options = {}) {
  async::all_to_all(communicator, in, out, options).wait();
}
void all_to_all_v(comm::Communicator& communicator, Communicable auto&& in, Communicable auto&& out,
                  std::span<const std::size_t> send_counts,
                  std::span<const std::size_t> recv_counts, const comm::OpOptions& options = {}) {
  async::all_to_all_v(communicator, in, out, send_counts, recv_counts, options).wait();
}
inline void all_reduce_many(comm::Communicator& communicator, std::span<const Buffer> buffers,
                            ReduceOp op, const comm::OpOptions& options = {}) {
  async::all_reduce_many(communicator, buffers, op, options).wait();
}
void send(comm::Communicator& communicator, Communicable auto&& values, int peer,
          std::uint32_t tag = 0, const comm::OpOptions& options = {}) {
  async::send(communicator, values, peer, tag, options).wait();
}
void recv(comm::Communicator& communicator, Communicable auto&& values, int peer,
          std::uint32_t tag = 0, const comm::OpOptions& options = {}) {
  async::recv(communicator, values, peer, tag, options).wait();
}
inline void barrier(comm::Communicator& communicator, const comm::OpOptions& options = {}) {
  communicator.barrier(options).wait();
}

namespace comm {

/// Sparse all-reduce: every rank brings some rows of one large matrix (such as an embedding's
/// gradient) and gets the sums of all rows that any rank brought.
///
///     trireme::SparseRows mine{.indices = {7, 2, 7}, .width = 64, .num_rows = 50'000};
///     mine.values = ...;                                   // 3 rows of 64 floats
///     trireme::SparseRows sum = trireme::sparse_all_reduce(job.world(), mine, trireme::Sum);
///
/// Rows that a rank repeats are added in the order of their positions. Rows of different ranks are
/// added by the tree sum (docs/numerics.md); a missing row counts as +0, and -0 counts as +0.
///
/// All ranks gather all indices. If the ranks bring k rows in all, u of them different, the rows
/// are sent by all_gather (each rank receives k rows), or, if 2u < k, by all_reduce of u rows with
/// zeros for missing ones (each rank receives less than 2u rows). Both give the same bits.
///
/// Counts as one call in the order of the calls. Errors and thread safety: Communicator.
struct SparseRows {
  std::vector<std::int64_t> indices;  // in a result: ascending, each once
  std::vector<std::byte> values;      // indices.size() rows of `width` elements
  std::size_t width = 1;
  std::int64_t num_rows = 0;  // of the whole matrix
  DType dtype = DType::F32;

  std::size_t row_bytes() const noexcept { return width * size_of(dtype); }
  template <class T>
  std::span<const T> row(std::size_t position) const {
    return {reinterpret_cast<const T*>(values.data() + position * row_bytes()), width};
  }
};

/// How rows are sent: by all_gather (Gather), by all_reduce (Dense), by the rule above (Choose).
enum class SparseWay : std::uint8_t { Choose, Gather, Dense };

struct SparseOptions {
  OpOptions op = {};
  SparseWay way = SparseWay::Choose;  // the same on all ranks
};

}  // namespace comm
using comm::SparseRows;

namespace async {
/// Sum or Mean. `in` is copied before this returns. `out` is filled when the Work is done, and must
/// stay valid until then. All ranks must give the same width, num_rows and dtype; a rank may bring
/// no row. ConfigError if an index or the number of values is wrong.
Work sparse_all_reduce(comm::Communicator& communicator, const SparseRows& in, SparseRows& out,
                       ReduceOp op, const comm::SparseOptions& options = {});
}  // namespace async

SparseRows sparse_all_reduce(comm::Communicator& communicator, const SparseRows& in, ReduceOp op,
                             const comm::SparseOptions& options = {});

}  // namespace trireme::inline v0
