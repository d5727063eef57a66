#include "trireme/plan/partition/down_sets.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <random>
#include <set>
#include <utility>

namespace trireme::inline v0::plan {
namespace {

bool is_ready(const Reads& reads, const NodeSet& done, std::size_t node) {
  return !done.has(node) && std::all_of(reads[node].begin(), reads[node].end(), [&](int from) {
    return done.has(static_cast<std::size_t>(from));
  });
}

// Takes ready nodes until none is left; `choose` picks the next one.
std::vector<int> order_by(
    const Reads& reads,
    const std::function<std::size_t(const std::vector<int>&, const NodeSet&)>& choose) {
  NodeSet done(reads.size());
  std::vector<int> order;
  while (true) {
    std::vector<int> ready;
    for (std::size_t node = 0; node < reads.size(); ++node)
      if (is_ready(reads, done, node)) ready.push_back(static_cast<int>(node));
    if (ready.empty()) return order;
    order.push_back(ready[choose(ready, done)]);
    done.add(static_cast<std::size_t>(order.back()));
  }
}

// Bytes of the values that `done` and `node` make and other nodes read.
std::int64_t open_bytes(const Reads& reads, const std::vector<std::int64_t>& bytes, NodeSet done,
                        std::size_t node) {
  done.add(node);
  std::set<int> open;
  for (std::size_t reader = 0; reader < reads.size(); ++reader) {
    if (done.has(reader)) continue;
    for (int from : reads[reader])
      if (done.has(static_cast<std::size_t>(from))) open.insert(from);
  }
  std::int64_t sum = 0;
  for (int from : open) sum += bytes[static_cast<std::size_t>(from)];
  return sum;
}

std::vector<int> greedy_order(const Reads& reads, const std::vector<std::int64_t>& bytes) {
  return order_by(reads, [&](const std::vector<int>& ready, const NodeSet& done) {
    std::size_t best = 0;
    std::int64_t least = std::numeric_limits<std::int64_t>::max();
    for (std::size_t i = 0; i < ready.size() && ready.size() > 1; ++i) {
      const std::int64_t open = open_bytes(reads, bytes, done, static_cast<std::size_t>(ready[i]));
      if (open < least) least = open, best = i;
    }
    return best;
  });
}

// Sorted by size: a set comes after its subsets.
std::vector<NodeSet> sorted(const std::set<NodeSet>& sets, std::size_t nodes) {
  std::vector<std::pair<std::size_t, NodeSet>> sized;
  for (const NodeSet& one : sets) {
    std::size_t size = 0;
    for (std::size_t node = 0; node < nodes; ++node) size += one.has(node) ? 1 : 0;
    sized.emplace_back(size, one);
  }
  std::sort(sized.begin(), sized.end());
  std::vector<NodeSet> result;
  for (auto& [size, one] : sized) result.push_back(std::move(one));
  return result;
}

}  // namespace

std::vector<int> topological_order(const Reads& reads) {
  return order_by(reads, [](const std::vector<int>&, const NodeSet&) { return std::size_t{0}; });
}

DownSets down_sets(const Reads& reads, const std::vector<std::int64_t>& bytes, std::size_t most) {
  const std::size_t nodes = reads.size();
  std::set<NodeSet> found = {NodeSet(nodes)};
  std::vector<NodeSet> edge(found.begin(), found.end());  // the sets of the current size
  while (!edge.empty() && found.size() <= most) {
    std::set<NodeSet> next;
    for (const NodeSet& one : edge) {
      for (std::size_t node = 0; node < nodes; ++node) {
        if (!is_ready(reads, one, node)) continue;
        NodeSet larger = one;
        larger.add(node);
        next.insert(std::move(larger));
      }
      if (found.size() + next.size() > most) break;
    }
    found.insert(next.begin(), next.end());
    edge.assign(next.begin(), next.end());
  }
  if (found.size() <= most) return {sorted(found, nodes), true};
  found.clear();
  const auto add_prefixes = [&](const std::vector<int>& order) {
    NodeSet prefix(nodes);
    found.insert(prefix);
    for (int node : order) {
      prefix.add(static_cast<std::size_t>(node));
      found.insert(prefix);
    }
  };
  add_prefixes(greedy_order(reads, bytes));
  add_prefixes(topological_order(reads));
  std::mt19937 random(1);  // a fixed seed, so that plans are reproducible
  for (int tries = 0; tries < 64 && found.size() + nodes <= most; ++tries) {
    add_prefixes(order_by(reads, [&](const std::vector<int>& ready, const NodeSet&) {
      return static_cast<std::size_t>(random()) % ready.size();
    }));
  }
  return {sorted(found, nodes), false};
}

}  // namespace trireme::inline v0::plan
