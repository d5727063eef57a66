// The traces of a group's ranks, brought together on rank 0, with the clocks measured.
//
// Ranks under one kernel, in one time namespace, have one monotonic clock. Another one is measured
// by ping-pong with rank 0, over whatever transport the group has: of eight rounds the shortest
// counts, and half of it bounds the error.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "trireme/comm/communicator.h"
#include "trireme/observe/trace.h"

namespace trireme {
inline namespace v0 {
namespace comm {

struct ClockOffset {
  std::int64_t nanoseconds = 0;  // rank 0's clock - this rank's
  std::int64_t error = 0;        // at most
};
/// Collective. `clock` is this rank's, in nanoseconds; ranks that give the same `name` share one
/// (empty: unknown, so it is measured; else observe::clock_name()).
ClockOffset measure_clock(Communicator& world, std::string_view name,
                          const std::function<std::int64_t()>& clock);

/// Collective. All ranks' traces on rank 0, in rank order; none elsewhere.
std::vector<observe::RankTrace> gather_traces(Communicator& world, observe::RankTrace own);

/// Collective. Both: what every rank has recorded so far, on rank 0's clock. For
/// observe::chrome_json.
std::vector<observe::RankTrace> gather_traces(Communicator& world, const observe::Trace& trace,
                                              std::string host);

}  // namespace comm
}  // namespace v0
}  // namespace trireme
