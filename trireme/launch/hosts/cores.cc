#include "trireme/launch/hosts/cores.h"

#include <algorithm>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string>

#include "trireme/observe/machine.h"

namespace trireme::inline v0::launch {
namespace {

// Parses a list such as "0-3,8,10-11".
std::vector<int> parse_list(const std::string& text) {
  std::vector<int> cores;
  std::istringstream in(text);
  for (std::string part; std::getline(in, part, ',');) {
    int first = 0, last = 0;
    char dash = 0;
    std::istringstream range(part);
    if (!(range >> first)) continue;
    last = range >> dash >> last ? last : first;
    for (int core = first; core <= last; ++core) cores.push_back(core);
  }
  return cores;
}

}  // namespace

std::vector<std::vector<int>> numa_nodes() {
  std::vector<std::vector<int>> nodes;
  for (int node = 0;; ++node) {
    std::ifstream file("/sys/devices/system/node/node" + std::to_string(node) + "/cpulist");
    std::string list;
    if (!std::getline(file, list)) break;
    nodes.push_back(parse_list(list));
  }
  if (nodes.empty()) nodes.push_back(observe::affinity_cores());
  return nodes;
}

CoreShare share_cores(const std::vector<int>& cores, int usable, int ranks, Bind bind,
                      const std::vector<std::vector<int>>& nodes) {
  CoreShare share;
  usable = std::clamp(usable, 1, static_cast<int>(cores.size()));
  share.per_rank = std::max(1, usable / ranks);
  share.overcommitted = ranks > usable;
  if (bind == Bind::None || ranks > usable) return share;
  for (int rank = 0; rank < ranks; ++rank) {
    if (bind == Bind::Core) {
      const auto first = cores.begin() + static_cast<long>(rank) * share.per_rank;
      share.pinned.emplace_back(first, first + share.per_rank);
      continue;
    }
    const auto& node = nodes[static_cast<std::size_t>(rank) * nodes.size() / ranks];
    std::vector<int> both;
    std::set_intersection(cores.begin(), cores.end(), node.begin(), node.end(),
                          std::back_inserter(both));
    share.pinned.push_back(both.empty() ? cores : both);
  }
  return share;
}

}  // namespace trireme::inline v0::launch
