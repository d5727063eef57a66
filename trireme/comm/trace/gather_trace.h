// Gathers the traces of a group's ranks on rank 0, and measures the offsets of their clocks.
//
// Ranks under one kernel, in one time namespace, share a monotonic clock. Other clocks are measured
// by eight ping-pong rounds with rank 0; half the shortest round bounds the error.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "trireme/comm/communicator.h"
#include "trireme/observe/trace.h"

namespace trireme::inline v0::comm {

struct ClockOffset {
  std::int64_t nanoseconds = 0;  // rank 0's clock - this rank's
  std::int64_t error = 0;        // at most
};
/// Collective. `clock` reads this rank's clock, in nanoseconds. Ranks that give the same `name`
/// (such as observe::clock_name()) share a clock; an empty name means unknown.
ClockOffset measure_clock(Communicator& world, std::string_view name,
                          const std::function<std::int64_t()>& clock);

/// Collective. All ranks' traces on rank 0, in rank order; none elsewhere.
std::vector<observe::RankTrace> gather_traces(Communicator& world, observe::RankTrace own);

/// Collective. Measures the clocks and gathers what all ranks have recorded so far, on rank 0's
/// clock, for observe::chrome_json.
std::vector<observe::RankTrace> gather_traces(Communicator& world, const observe::Trace& trace,
                                              std::string host);

}  // namespace trireme::inline v0::comm
