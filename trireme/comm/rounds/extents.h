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

/// The chunks of `op` that have elements in this rank's buffers. `segment`: the part of the buffer
/// to cut into chunks; ignored unless the chunks are slices of one buffer.
ByChunk<Extent> extents_of(const Operation& op, int chunks, int rank, int size, Slice segment);

}  // namespace trireme::inline v0::comm
