// Sparse all-reduce: every rank brings some rows of one large matrix (such as an embedding's
// gradient) and gets the sums of all rows that any rank brought.
//
//     trireme::SparseRows mine{.indices = {7, 2, 7}, .width = 64, .num_rows = 50'000};
//     mine.values = ...;                                   // 3 rows of 64 floats
//     trireme::SparseRows sum = trireme::sparse_all_reduce(job.world(), mine, trireme::Sum);
//
// Rows that a rank repeats are added in the order of their positions. Rows of different ranks are
// added by the tree sum (docs/numerics.md); a missing row counts as +0, and -0 counts as +0.
//
// All ranks gather all indices. If the ranks bring k rows in all, u of them different, the rows are
// sent by all_gather (each rank receives k rows), or, if 2u < k, by all_reduce of u rows with zeros
// for missing ones (each rank receives less than 2u rows). Both give the same bits.
//
// Counts as one call in the order of the calls. Errors and thread safety: Communicator.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "trireme/comm/communicator.h"

namespace trireme::inline v0 {
namespace comm {

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

/// How the rows are sent: by all_gather (Gather) or all_reduce (Dense); Choose: as said above.
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
