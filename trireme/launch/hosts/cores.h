// The cores of each rank on this host: the affinity mask limited by the cgroup quota, divided among
// the ranks. Pure except numa_nodes(); thread safe.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace trireme::inline v0::launch {

enum class Bind : std::uint8_t { Core, Numa, None };

/// The cores of each NUMA node, some of which may have none; no nodes if the kernel lists none.
std::vector<std::vector<int>> numa_nodes(const std::string& folder = "/sys/devices/system/node");

struct CoreShare {
  int per_rank = 1;                      // for thread pools
  bool overcommitted = false;            // more ranks than cores
  std::vector<std::vector<int>> pinned;  // by rank; empty: not pinned
};
/// `usable`: how many of `cores` the cgroup quota allows to use. More ranks than cores: not pinned.
CoreShare share_cores(const std::vector<int>& cores, int usable, int ranks, Bind bind,
                      const std::vector<std::vector<int>>& nodes);

}  // namespace trireme::inline v0::launch
