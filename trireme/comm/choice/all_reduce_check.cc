#include "trireme/comm/choice/all_reduce_check.h"

#include <string>

#include "trireme/base/error.h"
#include "trireme/comm/native/native_backend.h"
#include "trireme/comm/nccl/gpu_plan.h"
#include "trireme/comm/rounds/registry.h"

namespace trireme::inline v0::comm {

void check_all_reduce(std::string_view wanted, const AllReducePlace& place) {
  const auto refuse = [&](const std::string& what, const std::string& advice) {
    throw ConfigError(what, {.rank = place.rank,
                             .operation = "all_reduce",
                             .label = "comm.algorithm",
                             .advice = advice});
  };
  if (wanted == nccl::kNative && place.transport != "nccl")
    refuse("algorithm nccl-native needs transport nccl",
           "Use comm.transport nccl where there are GPUs, or algorithm auto.");
  if (wanted == "direct" && place.ranks > 1 && !place.can_map)
    refuse("algorithm direct needs memory that ranks share; transport " +
               std::string(place.transport) + " cannot map it",
           "Use algorithm auto or ring, or transport shm.");
  if (wanted == "auto" || wanted == "direct" || wanted == kMpiNative || wanted == nccl::kNative ||
      find_algorithm(OpKind::AllReduce, wanted) != nullptr)
    return;
  std::string names = "auto, direct, mpi-native";
  for (const AlgorithmEntry* entry : algorithms_of(OpKind::AllReduce)) names += ", " + entry->name;
  refuse("unknown algorithm " + std::string(wanted), "Choose one of " + names + ".");
}

}  // namespace trireme::inline v0::comm
