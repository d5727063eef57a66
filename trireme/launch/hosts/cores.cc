#include "trireme/launch/hosts/cores.h"

#include <algorithm>
#include <fstream>
#include <iterator>
#include <sstream>
#include <utility>

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

// Reads such a list from the file's first line; nothing if the file cannot be read.
std::vector<int> list_in(const std::string& path) {
  std::string line;
  std::ifstream file(path);
  std::getline(file, line);
  return parse_list(line);
}

// The cores of each node that has some of `cores`.
std::vector<std::vector<int>> divided(const std::vector<int>& cores,
                                      const std::vector<std::vector<int>>& nodes) {
  std::vector<std::vector<int>> parts;
  for (const std::vector<int>& node : nodes) {
    std::vector<int> both;
    std::set_intersection(cores.begin(), cores.end(), node.begin(), node.end(),
                          std::back_inserter(both));
    if (!both.empty()) parts.push_back(std::move(both));
  }
  if (parts.empty()) parts.push_back(cores);
  return parts;
}

}  // namespace

std::vector<std::vector<int>> numa_nodes(const std::string& folder) {
  std::vector<std::vector<int>> nodes;
  for (const int node : list_in(folder + "/online"))
    nodes.push_back(list_in(folder + "/node" + std::to_string(node) + "/cpulist"));
  return nodes;
}

CoreShare share_cores(const std::vector<int>& cores, int usable, int ranks, Bind bind,
                      const std::vector<std::vector<int>>& nodes) {
  CoreShare share;
  usable = std::clamp(usable, 1, static_cast<int>(cores.size()));
  share.per_rank = std::max(1, usable / ranks);
  share.overcommitted = ranks > usable;
  if (bind == Bind::None || ranks > usable) return share;
  const std::vector<std::vector<int>> parts = divided(cores, nodes);
  for (int rank = 0; rank < ranks; ++rank) {
    if (bind == Bind::Core) {
      const auto first = cores.begin() + static_cast<long>(rank) * share.per_rank;
      share.pinned.emplace_back(first, first + share.per_rank);
      continue;
    }
    share.pinned.push_back(parts[static_cast<std::size_t>(rank) * parts.size() / ranks]);
  }
  return share;
}

}  // namespace trireme::inline v0::launch
