// Checks whether an all-reduce algorithm is possible; used for calls and for planning a job.
#pragma once

#include <string_view>

namespace trireme::inline v0::comm {

/// The group that is to run it.
struct AllReducePlace {
  int ranks = 1;
  std::string_view transport;
  bool can_map = false;  // ranks can map one another's memory
  int rank = -1;         // for the error; -1: none
};
/// `wanted`: a registered algorithm, "auto", "direct", "mpi-native" or "nccl-native". Throws
/// ConfigError if it is unknown or needs another transport. Does not check whether MPI can reduce.
void check_all_reduce(std::string_view wanted, const AllReducePlace& place);

}  // namespace trireme::inline v0::comm
