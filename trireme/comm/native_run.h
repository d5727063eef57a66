// mpi-native: an all-reduce by the network's own reduction (net::Transport::reduce), in whatever
// order of addition it takes; kept to be measured against, and for networks that add in hardware.
//
// Integers, Min and Max, whose bits no order changes (but which NaN a Min gives); and floating sums
// where the job is not reproducible. Over groups of a job, and for 16-bit floats, which MPI does
// not have, calls that do not name it take `auto`.
#pragma once

#include <memory>
#include <string_view>

namespace trireme {
inline namespace v0 {
namespace comm {

inline constexpr std::string_view kMpiNative = "mpi-native";

class Engine;
struct Call;

/// Once the ranks have agreed on the call: this rank's terms are added here, from left to right.
void run_native(Engine& engine, const std::shared_ptr<Call>& call);

}  // namespace comm
}  // namespace v0
}  // namespace trireme
