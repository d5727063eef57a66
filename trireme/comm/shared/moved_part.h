// Part: the bytes that a rank needs from one rank's input in a collective that only moves data.
#pragma once

#include <cstddef>
#include <vector>

#include "trireme/comm/calls/operation.h"

namespace trireme::inline v0::comm {

/// Bytes [source, source + bytes) of rank `from`'s input go to byte `target` of this rank's output.
struct Part {
  int from = 0;
  std::size_t source = 0, target = 0, bytes = 0;
};

/// All parts that `rank` of `size` needs in `operation`, including those from its own input.
std::vector<Part> parts_of(const Operation& operation, int rank, int size);

}  // namespace trireme::inline v0::comm
