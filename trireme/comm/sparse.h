// Sparse all-reduce: every rank brings some rows of one large matrix (an embedding's gradient), and
// every rank gets the sum of all rows that anybody brought.
//
//     trireme::SparseRows mine{.indices = {7, 2, 7}, .width = 64, .num_rows = 50'000};
//     mine.values = ...;                                   // 3 rows of 64 floats
//     trireme::SparseRows sum = trireme::sparse_all_reduce(job.world(), mine, trireme::Sum);
//
// A rank's repeated indices are added in position order; then rows are added by the tree sum over
// the ranks (NUMERICS.md), a missing row counting as +0 and -0 as +0. All ranks learn all indices.
// With k rows brought in all and u different ones, the rows themselves travel by all_gather (each
// rank receives k of them), or, where 2u < k, by all_reduce of the u rows, filled up with zeros
// (each rank receives less than 2u). Both give the same bits.
//
// One call in the order of the calls. Errors and thread safety: Communicator.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "trireme/comm/communicator.h"

namespace trireme {
inline namespace v0 {
namespace comm {

struct SparseRows {
  std::vector<std::int64_t> indices;  // a result's: ascending, each once
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

/// How the rows of a sum travelled.
enum class SparseWay : std::uint8_t { Choose, Gather, Dense };

struct SparseOptions {
  OpOptions op = {};
  SparseWay way = SparseWay::Choose;  // the same on all ranks
};

}  // namespace comm
using comm::SparseRows;

namespace async {
/// Sum or Mean. `in` is read before this returns; `out` is filled when the Work is done and must
/// stay until then. All ranks give the same width, num_rows and dtype; any of them may bring no
/// row. ConfigError where an index is outside 0 ... num_rows-1 or the values are not rows of
/// `width`.
Work sparse_all_reduce(comm::Communicator& communicator, const SparseRows& in, SparseRows& out,
                       ReduceOp op, const comm::SparseOptions& options = {});
}  // namespace async

SparseRows sparse_all_reduce(comm::Communicator& communicator, const SparseRows& in, ReduceOp op,
                             const comm::SparseOptions& options = {});

}  // namespace v0
}  // namespace trireme
