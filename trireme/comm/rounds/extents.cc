#include "trireme/comm/rounds/extents.h"

namespace trireme::inline v0::comm {
namespace {

ByChunk<Extent> slices(const Operation& op, int chunks, Slice segment) {
  ByChunk<Extent> extents;
  for (int chunk = 0; chunk < chunks; ++chunk) {
    const Slice slice = slice_of(segment.count, size_of(op.dtype), static_cast<std::size_t>(chunk),
                                 static_cast<std::size_t>(chunks));
    const std::size_t at = segment.begin + slice.begin;
    extents[chunk] = {at, at, slice.count};
  }
  return extents;
}

// One chunk per rank. One of `in` and `out` holds all chunks, the other only this rank's.
ByChunk<Extent> pieces(const Operation& op, int chunks, int size) {
  const bool gathers = op.kind == OpKind::AllGather || op.kind == OpKind::Gather;
  ByChunk<Extent> extents;
  std::size_t begin = 0;
  for (int chunk = 0; chunk < chunks; ++chunk) {
    const std::size_t count = op.counts.empty() ? op.count / size : op.counts[chunk];
    extents[chunk] = {gathers ? 0 : begin, gathers ? begin : 0, count};
    begin += count;
  }
  return extents;
}

// Chunk i*size + j goes from rank i to rank j. This rank's row lies in `in`, its column in `out`.
ByChunk<Extent> exchanged(const Operation& op, int rank, int size) {
  ByChunk<Extent> extents;
  std::size_t in = 0, out = 0;
  for (int peer = 0; peer < size; ++peer) {
    const std::size_t equal = op.count / size;
    Extent& goes = extents[rank * size + peer];
    goes.in = in;
    goes.count = op.counts.empty() ? equal : op.counts[peer];
    in += goes.count;
    Extent& comes = extents[peer * size + rank];
    comes.out = out;
    comes.count = op.recv_counts.empty() ? equal : op.recv_counts[peer];
    out += comes.count;
  }
  return extents;
}

}  // namespace

ByChunk<Extent> extents_of(const Operation& op, int chunks, int rank, int size, Slice segment) {
  switch (op.kind) {
    case OpKind::AllGather:
    case OpKind::Gather:
    case OpKind::ReduceScatter:
    case OpKind::Scatter:
      return pieces(op, chunks, size);
    case OpKind::AllToAll:
      return exchanged(op, rank, size);
    default:
      return slices(op, chunks, segment);
  }
}

}  // namespace trireme::inline v0::comm
