// Which all-reduce can be had where: one check for a call and for whoever plans a job.
#pragma once

#include <string_view>

namespace trireme {
inline namespace v0 {
namespace comm {

/// Where it is to run.
struct AllReducePlace {
  int ranks = 1;
  std::string_view transport;
  bool can_map = false;  // ranks reach one another's memory
  int rank = -1;         // for the sentence; -1: nobody's
};
/// `wanted`: a registered algorithm, "auto", "direct", "mpi-native" (which gives way to auto where
/// MPI cannot reduce) or "nccl-native". Throws ConfigError where it cannot be had.
void check_all_reduce(std::string_view wanted, const AllReducePlace& place);

}  // namespace comm
}  // namespace v0
}  // namespace trireme
