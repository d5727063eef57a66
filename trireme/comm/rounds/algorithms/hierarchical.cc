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
#include <set>

#include "trireme/comm/rounds/algorithms/halving_doubling.h"
#include "trireme/comm/rounds/registry.h"

namespace trireme::inline v0::comm {
namespace {

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

// Exact for one host, for one rank per host, and if both numbers are powers of two. Otherwise some
// messages carry more terms than this counts.
AlgorithmCost hierarchical_cost(const CostCase& c) {
  const int num_hosts =
      c.hosts.empty() ? 1 : static_cast<int>(std::set<int>(c.hosts.begin(), c.hosts.end()).size());
  const int local = c.size / num_hosts;
  const double part = double(local - 1) / local;
  AlgorithmCost cost = halving_doubling_cost({.size = num_hosts, .bytes = c.bytes / local});
  cost.rounds += local > 1 ? 2 : 0;
  cost.bytes_sent_max_rank += 2 * part * c.bytes;
  cost.bytes_added += part * c.bytes;
  return cost;
}

}  // namespace

AlgorithmEntry hierarchical_entry() {
  return {.kind = OpKind::AllReduce,
          .name = "hierarchical",
          .about = "within hosts, across hosts by slices, and back",
          .generator = hierarchical,
          .cost = hierarchical_cost,
          .formulas = {{", h hosts of q ranks", "2 + that of halving_doubling on h",
                        "2(q−1)/q + (halving_doubling on h)/q", "likewise"}},
          .by_hosts = true};
}

}  // namespace trireme::inline v0::comm
