// Measures a collective: seconds per call on the slowest rank, returned on every rank.
//
// Used by `trireme bench comm` and bench/. All ranks must call with the same arguments. Buffers are
// f32 zeros. `bytes` is the size of the whole (all_gather, ...: of all ranks' parts together).
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/comm/calls/op_kind.h"
#include "trireme/comm/communicator.h"

namespace trireme::inline v0::comm {

/// Calls `once` repeatedly for about `budget` and returns the seconds of one call: the median over
/// batches, each timed on its slowest rank. The same number on all ranks.
double measure(Communicator& group, Duration budget, const std::function<void()>& once);

struct MeasureOptions {
  OpKind kind = OpKind::AllReduce;
  std::vector<std::size_t> sizes;  // bytes
  std::string algorithm;           // empty: the communicator's
  bool arena = true;               // buffers from Communicator::allocate; else ordinary memory
  Device device = {};              // of the buffers; a GPU's are always from Communicator::allocate
  double seconds = 0.05;           // about how long to measure each size
};

struct Measured {
  std::size_t bytes = 0;
  double seconds = 0;  // per call: the median of the batches
};

/// The collectives that can be measured, in the order in which to list them.
std::vector<OpKind> measurable();
/// "all_reduce" -> OpKind::AllReduce. ConfigError, with the choices, if it is not measurable.
OpKind measurable_kind(std::string_view name);

/// Sizes in bytes, from 8 to 128 MiB or `most`, whichever is less.
std::vector<std::size_t> usual_sizes(std::size_t most);

std::vector<Measured> measure(Communicator& world, const MeasureOptions& options);

}  // namespace trireme::inline v0::comm
