// mpi-native: an all-reduce by the network's own reduction (net::Reducer), which adds in its own
// order. Kept for comparison, and for networks that add in hardware.
//
// Allowed for integers, Min and Max, whose bits do not depend on the order (except for which NaN a
// Min returns), and for other floating-point reductions if the job is not reproducible. It works
// only over the whole job, and not for 16-bit floats, which MPI lacks. Elsewhere a call that names
// it fails, and a communicator that has it as default uses `auto` (selection.h).
#pragma once

#include <string_view>

namespace trireme::inline v0::comm {

inline constexpr std::string_view kMpiNative = "mpi-native";

}  // namespace trireme::inline v0::comm
