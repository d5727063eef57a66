// Extent: where a chunk of a call lies in this rank's buffers. Pure functions.
#pragma once

#include <cstddef>

#include "trireme/comm/calls/operation.h"
#include "trireme/comm/rounds/by_chunk.h"
#include "trireme/comm/slices.h"

namespace trireme::inline v0::comm {

struct Extent {
  std::size_t in = 0, out = 0, count = 0;  // offsets in the call's buffers, and length: elements
};

/// The chunks of `op` that have elements in this rank's buffers. Only calls whose chunks are slices of one buffer are cut into segments:
/// `segment` is the part of it to be cut, the other calls ignore it.
ByChunk<Extent> extents_of(const Operation& op, int chunks, int rank, int size, Slice segment);

}  // namespace trireme::inline v0::comm
