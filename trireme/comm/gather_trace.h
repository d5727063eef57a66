// The traces of a group's ranks, brought together on rank 0, with the clocks measured.
//
// Ranks of one host have one monotonic clock. Another host's is measured by ping-pong: of eight
// rounds the shortest counts, and half of it bounds the error.
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
/// Collective. `clock` is this rank's, in nanoseconds; `host` names its host (empty: unknown, so
/// its clock is measured).
ClockOffset measure_clock(Communicator& world, std::string_view host,
                          const std::function<std::int64_t()>& clock);

/// Collective. All ranks' traces on rank 0, in rank order; none elsewhere.
std::vector<observe::RankTrace> gather_traces(Communicator& world, observe::RankTrace own);

}  // namespace comm
}  // namespace v0
}  // namespace trireme
