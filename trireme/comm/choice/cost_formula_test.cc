#include <gtest/gtest.h>

#include <algorithm>
#include <bit>

#include "trireme/base/error.h"
#include "trireme/comm/choice/cost.h"
#include "trireme/comm/rounds/registry.h"

namespace trireme::comm {
namespace {

std::vector<Route> routes_of(const AlgorithmEntry& entry, int size, int pieces,
                             const std::vector<int>& hosts = {}) {
  const Program program = record(entry.name, entry.generator, size, 0, hosts, pieces);
  return resolve(entry.name, program,
                 layout_of(entry.kind, size, static_cast<std::uint32_t>(size), 0));
}

// The merges, in chunks, of the rank that merges most.
std::size_t most_added(const std::vector<Route>& routes) {
  std::size_t most = 0;
  for (const Route& route : routes) {
    std::size_t added = 0;
    for (const RouteRound& round : route.rounds) {
      for (const auto& chunk : round.merges) added += chunk.merges.size();
    }
    most = std::max(most, added);
  }
  return most;
}

// Compares the cost of `routes` with `formula`. A chunk has bytes / chunks bytes.
void expect_equal(const std::vector<Route>& routes, const AlgorithmCost& formula, double bytes,
                  double chunks, const std::string& what) {
  const std::vector<double> sent = buffers_sent(routes);
  const double all_bytes = bytes / chunks * routes[0].num_chunks;
  EXPECT_EQ(shape_of(routes).rounds, formula.rounds) << what;
  EXPECT_NEAR(*std::max_element(sent.begin(), sent.end()) * all_bytes, formula.bytes_sent_max_rank,
              1e-6)
      << what;
  EXPECT_NEAR(static_cast<double>(most_added(routes)) * bytes / chunks, formula.bytes_added, 1e-6)
      << what;
}

double chunks_of(OpKind kind, const std::vector<Route>& routes, int size) {
  return kind == OpKind::AllToAll ? size : routes[0].num_chunks;
}

// The formulas of docs/algorithms.md must equal what the programs do.
TEST(CostFormula, FormulasEqualWhatTheRoutesDo) {
  const double bytes = 960;
  for (const OpKind kind :
       {OpKind::AllReduce, OpKind::Reduce, OpKind::ReduceScatter, OpKind::AllGather, OpKind::Gather,
        OpKind::Scatter, OpKind::Broadcast, OpKind::AllToAll}) {
    for (const AlgorithmEntry* entry : algorithms_of(kind)) {
      if (!ships(*entry)) continue;
      ASSERT_NE(entry->cost, nullptr) << entry->name;
      for (int size : {2, 3, 4, 5, 6, 7, 8, 13, 16}) {
        for (int pieces : {1, 4}) {
          const AlgorithmCost formula =
              entry->cost({.size = size, .bytes = bytes, .pieces = pieces});
          const std::string what = std::string(name_of(kind)) + " " + entry->name + " on " +
                                   std::to_string(size) + " in " + std::to_string(pieces);
          const auto routes = routes_of(*entry, size, pieces);
          expect_equal(routes, formula, bytes, chunks_of(kind, routes, size), what);
        }
      }
    }
  }
}

TEST(CostFormula, HierarchicalOverHosts) {
  const AlgorithmEntry& entry = *find_algorithm(OpKind::AllReduce, "hierarchical");
  for (int local : {1, 2, 3, 4}) {
    for (int num_hosts : {1, 2, 3, 4, 5}) {
      std::vector<int> hosts;
      for (int rank = 0; rank < local * num_hosts; ++rank) hosts.push_back(rank / local);
      const int size = static_cast<int>(hosts.size());
      const bool exact = num_hosts == 1 || local == 1 ||
                         std::has_single_bit(static_cast<unsigned>(local * num_hosts));
      if (size == 1 || !exact) continue;
      const auto routes = routes_of(entry, size, 1, hosts);
      expect_equal(routes, entry.cost({.size = size, .bytes = 960, .hosts = hosts}), 960,
                   routes[0].num_chunks,
                   std::to_string(local) + " ranks on " + std::to_string(num_hosts) + " hosts");
    }
  }
}

TEST(CostFormula, KnownValues) {
  // 2(n-1)/n buffers: the lower bound of any all-reduce, reached for n = 2^k.
  const AlgorithmEntry& halving = *find_algorithm(OpKind::AllReduce, "halving_doubling");
  EXPECT_EQ(halving.cost({.size = 8, .bytes = 800}).rounds, 6);
  EXPECT_DOUBLE_EQ(halving.cost({.size = 8, .bytes = 800}).bytes_sent_max_rank, 1400);
  const AlgorithmEntry& trees = *find_algorithm(OpKind::AllReduce, "double_tree");
  EXPECT_DOUBLE_EQ(trees.cost({.size = 16, .bytes = 800, .pieces = 8}).bytes_sent_max_rank, 2400);
}

}  // namespace
}  // namespace trireme::comm
