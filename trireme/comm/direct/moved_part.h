// Part: what one rank gets of another's input in a collective that only moves data.
#pragma once

#include <cstddef>
#include <vector>

#include "trireme/comm/operation.h"

namespace trireme {
inline namespace v0 {
namespace comm {

/// Bytes [source, source + bytes) of the input of rank `from`, to `target` in one's own output.
struct Part {
  int from = 0;
  std::size_t source = 0, target = 0, bytes = 0;
};

/// What `rank` of `size` reads in `operation`, one's own input included.
std::vector<Part> parts_of(const Operation& operation, int rank, int size);

}  // namespace comm
}  // namespace v0
}  // namespace trireme
