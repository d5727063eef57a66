#include "trireme/comm/choice/cost_formula.h"

#include <algorithm>
#include <bit>
#include <set>

#include "trireme/comm/rounds/algorithms/rank_tree.h"

namespace trireme::inline v0::comm {
namespace {

int floor_log2(int n) { return std::bit_width(static_cast<unsigned>(n)) - 1; }
int ceil_log2(int n) { return height_of_rank_tree(n); }

AlgorithmCost naive_cost(int n, double bytes) { return {1, (n - 1) * bytes, (n - 1) * bytes}; }

AlgorithmCost central_cost(int n, double bytes) { return {2, (n - 1) * bytes, (n - 1) * bytes}; }

// The first rank of the right half sends most: once up, then down once for each level of its half.
AlgorithmCost tree_cost(int n, double bytes) {
  const int sent = 1 + floor_log2(n - n / 2);
  return {2 * ceil_log2(n), sent * bytes, floor_log2(n) * bytes};
}

// With n = 2^k + e, the first rank of each of e pairs also adds one buffer and sends one.
AlgorithmCost halving_doubling_cost(int n, double bytes) {
  const int core = 1 << floor_log2(n), fold = n > core ? 1 : 0;
  const double part = double(core - 1) / core;
  return {2 * floor_log2(n) + 2 * fold, (2 * part + fold) * bytes, (part + fold) * bytes};
}

// The number of terms that hold the sum over ranks first ... first+count-1 (modulo n).
int terms_of(int first, int count, int n) {
  const auto nodes = [&](int begin, int end) {
    const kernel::LeafRange range{static_cast<std::uint32_t>(begin),
                                  static_cast<std::uint32_t>(end - begin)};
    return static_cast<int>(kernel::maximal_nodes(range, static_cast<std::uint32_t>(n)).size());
  };
  if (count == n) return 1;
  if (first + count <= n) return nodes(first, first + count);
  return nodes(first, n) + nodes(0, first + count - n);
}

// In round s, the chunk from rank c holds the terms of ranks c ... c+s. Then n-1 rounds send sums.
AlgorithmCost ring_cost(int n, double bytes, int pieces) {
  AlgorithmCost cost{2 * (n - 1) * pieces, 0, 0};
  for (int rank = 0; rank < n; ++rank) {
    int sent = n - 1, added = 0;
    for (int s = 0; s < n - 1; ++s) {
      const int first = (rank - s + n) % n, from = (rank - s - 1 + n) % n;
      sent += terms_of(first, s + 1, n);
      added += terms_of(from, s + 1, n) + 1 - terms_of(from, s + 2, n);
    }
    cost.bytes_sent_max_rank = std::max(cost.bytes_sent_max_rank, sent * bytes / n);
    cost.bytes_added = std::max(cost.bytes_added, added * bytes / n);
  }
  return cost;
}

// A piece goes up from height h in round h + piece, and down from depth d in round top + d + piece.
// A leaf receives the sum only if it is the outsider; all other ranks receive it as holders.
AlgorithmCost double_tree_cost(int n, double bytes, int pieces) {
  std::vector<int> sent(n), added(n);  // in half buffers
  for (int which : {0, 1}) {
    const int outsider = which == 0 ? 0 : n - 1;
    for (const RankTreeNode& node : rank_tree(n)) {
      const int holder = node.split() - which;
      ++added[holder];
      for (const auto& half : {node.left(), node.right()}) {
        const bool leaf = half.count == 1;
        const int below = leaf ? static_cast<int>(half.first) : RankTreeNode{half}.split() - which;
        if (below == holder) continue;
        ++sent[below];
        if (!leaf || below == outsider) ++sent[holder];
      }
    }
  }
  return {2 * ceil_log2(n) + pieces - 1, *std::max_element(sent.begin(), sent.end()) * bytes / 2,
          *std::max_element(added.begin(), added.end()) * bytes / 2};
}

// Exact for one host, for one rank per host, and if both numbers are powers of two. Otherwise some
// messages carry more terms than this counts.
AlgorithmCost hierarchical_cost(int n, double bytes, const std::vector<int>& hosts) {
  const int num_hosts =
      hosts.empty() ? 1 : static_cast<int>(std::set<int>(hosts.begin(), hosts.end()).size());
  const int local = n / num_hosts;
  const double part = double(local - 1) / local;
  AlgorithmCost cost = halving_doubling_cost(num_hosts, bytes / local);
  cost.rounds += local > 1 ? 2 : 0;
  cost.bytes_sent_max_rank += 2 * part * bytes;
  cost.bytes_added += part * bytes;
  return cost;
}

}  // namespace

std::optional<AlgorithmCost> cost_formula(OpKind kind, std::string_view name, int size,
                                          double bytes, int pieces, const std::vector<int>& hosts) {
  if (size == 1) return AlgorithmCost{};
  const double others = double(size - 1) / size;  // n-1 of n pieces
  switch (kind) {
    case OpKind::AllReduce:
      if (name == "naive") return naive_cost(size, bytes);
      if (name == "central") return central_cost(size, bytes);
      if (name == "all_pairs") return AlgorithmCost{2, 2 * others * bytes, others * bytes};
      if (name == "tree") return tree_cost(size, bytes);
      if (name == "ring") return ring_cost(size, bytes, pieces);
      if (name == "double_tree") return double_tree_cost(size, bytes, pieces);
      if (name == "halving_doubling") return halving_doubling_cost(size, bytes);
      if (name == "hierarchical") return hierarchical_cost(size, bytes, hosts);
      return std::nullopt;
    case OpKind::Broadcast: {
      const int rounds = ceil_log2(size);
      if (name == "binomial") return AlgorithmCost{rounds, rounds * bytes, 0};
      if (name == "chain") return AlgorithmCost{size - 2 + pieces, bytes, 0};
      return std::nullopt;
    }
    case OpKind::AllGather:
    case OpKind::ReduceScatter: {
      const double added = kind == OpKind::ReduceScatter ? others * bytes : 0;
      if (name != "pairwise") return std::nullopt;
      return AlgorithmCost{size - 1, others * bytes, added};
    }
    case OpKind::Reduce:
      if (name == "tree") {
        return AlgorithmCost{ceil_log2(size), bytes, floor_log2(size) * bytes};
      }
      if (name == "pairwise") return AlgorithmCost{size, bytes, others * bytes};
      return std::nullopt;
    case OpKind::Gather:
      if (name == "central") return AlgorithmCost{1, bytes / size, 0};
      return std::nullopt;
    case OpKind::Scatter:
      if (name == "central") return AlgorithmCost{1, others * bytes, 0};
      return std::nullopt;
    case OpKind::AllToAll:
      if (name == "pairwise") return AlgorithmCost{size - 1, others * bytes, 0};
      if (name == "naive") return AlgorithmCost{1, others * bytes, 0};
      return std::nullopt;
    default:
      return std::nullopt;
  }
}

}  // namespace trireme::inline v0::comm
