// Measuring a collective: seconds per call, on every rank the slowest rank's figure.
//
// Behind `trireme bench comm` and bench/. All ranks call with the same arguments. Buffers are f32
// and hold zeros; `bytes` is the whole (all_gather, reduce_scatter, ...: all ranks' parts
// together).
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/comm/communicator.h"
#include "trireme/comm/op_kind.h"

namespace trireme {
inline namespace v0 {
namespace comm {

/// Calls `once` again and again for about `budget` and returns the seconds of one call: the median
/// over batches, of the slowest rank in each. The same number on all ranks.
double measure(Communicator& group, Duration budget, const std::function<void()>& once);

struct MeasureOptions {
  OpKind kind = OpKind::AllReduce;
  std::vector<std::size_t> sizes;  // bytes
  std::string algorithm;           // empty: the communicator's
  bool shared = false;             // the result once per host (all_reduce, broadcast, all_gather)
  bool arena = true;               // buffers of Communicator::allocate; else ordinary memory
  double seconds = 0.05;           // spent on each size, about
};

struct Measured {
  std::size_t bytes = 0;
  double seconds = 0;  // a call: the median of the batches
};

/// The collectives that can be measured, in the order in which they are listed.
std::vector<OpKind> measurable();
/// "all_reduce" -> OpKind::AllReduce; ConfigError names those there are.
OpKind measurable_kind(std::string_view name);

/// 8 B to 128 MiB, each four times or more the one before.
std::vector<std::size_t> usual_sizes(std::size_t most);

std::vector<Measured> measure(Communicator& world, const MeasureOptions& options);

}  // namespace comm
}  // namespace v0
}  // namespace trireme
