// Hierarchical: first within every host, then across hosts, then back. The buffer is cut into as
// many slices as the smallest host has ranks; local rank j of every host leads slice j.
//
//   1. within a host, every rank sends slice j to leader j, which adds          1 round
//   2. the leaders of a slice all-reduce it by halving and doubling             2 log2(hosts)
//   3. every leader sends its slice to all ranks of its host                    1 round
//
// For S bytes, each leader sends about 2S/slices to other hosts. With one host this is a direct
// reduce-scatter and all-gather; with one rank per host, halving_doubling.
#include <algorithm>
#include <map>

#include "trireme/comm/rounds/algorithms/algorithms.h"
#include "trireme/comm/rounds/algorithms/halving_doubling.h"

namespace trireme::inline v0::comm {

void hierarchical(Algorithm& a) {
  std::map<int, std::vector<int>> ranks_of_host;
  for (int rank = 0; rank < a.size; ++rank) {
    ranks_of_host[a.host_of_rank[static_cast<std::size_t>(rank)]].push_back(rank);
  }
  std::size_t slices = ranks_of_host.begin()->second.size();
  for (const auto& [host, ranks] : ranks_of_host) slices = std::min(slices, ranks.size());
  const int parts = halving_chunks(static_cast<int>(ranks_of_host.size()));
  a.chunks(static_cast<int>(slices) * parts);

  Timetable table;
  const bool alone = slices == 1 && ranks_of_host.size() == static_cast<std::size_t>(a.size);
  const int across = alone ? 0 : 1;
  int back = across;
  for (std::size_t slice = 0; slice < slices; ++slice) {
    std::vector<int> leaders;
    for (const auto& [host, ranks] : ranks_of_host) leaders.push_back(ranks[slice]);
    back = add_halving_doubling(table, across, leaders, static_cast<int>(slice) * parts);
  }
  for (const auto& [host, ranks] : ranks_of_host) {
    for (std::size_t step = 1; step < ranks.size(); ++step) {  // starts with the neighbour
      for (std::size_t slice = 0; slice < slices; ++slice) {
        const int leader = ranks[slice], other = ranks[(slice + step) % ranks.size()];
        for (int part = 0; part < parts; ++part) {
          const Chunk chunk{static_cast<int>(slice) * parts + part};
          table.add(0, other, leader, chunk);
          table.copy(back, leader, other, chunk);
        }
      }
    }
  }
  table.record(a);
}

}  // namespace trireme::inline v0::comm
