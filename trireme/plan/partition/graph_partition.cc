#include "trireme/plan/partition/graph_partition.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <set>
#include <utility>

#include "trireme/base/refuse.h"
#include "trireme/base/words.h"
#include "trireme/plan/partition/down_sets.h"

namespace trireme::inline v0::plan {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();

std::size_t at(int index) { return static_cast<std::size_t>(index); }

Reads reads_of(const Graph& graph) {
  Reads reads(graph.nodes.size());
  for (const GraphValue& value : graph.values)
    for (int to : value.to) reads[at(to)].push_back(value.from);
  return reads;
}

void check(const Graph& graph, const PartitionOptions& options) {
  const int nodes = static_cast<int>(graph.nodes.size());
  if (options.stages < 1 || options.stages > nodes) {
    refuse("partition",
           counted(options.stages, "stage") + " of " + counted(nodes, "node") +
               ": each stage has at least one",
           nodes == 1 ? "Use 1 stage." : "Use 1 to " + std::to_string(nodes) + " stages.");
  }
  for (const GraphNode& node : graph.nodes) {
    if (node.seconds >= 0 && std::isfinite(node.seconds) && node.weight_bytes >= 0 &&
        node.activation_bytes >= 0)
      continue;
    refuse("partition", "node " + node.name + " has a cost that is negative or not finite",
           "Measure the node again.");
  }
  for (const GraphValue& value : graph.values) {
    const auto wrong = [&](int node) { return node < 0 || node >= nodes; };
    if (wrong(value.from) || std::ranges::any_of(value.to, wrong) || value.bytes < 0) {
      refuse("partition",
             "a value from node " + std::to_string(value.from) + " of " + std::to_string(nodes) +
                 " has an end that is no node, or a negative size",
             "");
    }
  }
  const auto order = topological_order(reads_of(graph));
  if (order.size() == graph.nodes.size()) return;
  std::set<int> cycle;
  for (int node = 0; node < nodes; ++node) cycle.insert(node);
  for (int node : order) cycle.erase(node);
  refuse("partition",
         "the graph has a cycle through or before node " + graph.nodes[at(*cycle.begin())].name,
         "Stages follow one another: a node cannot read what comes of its own output.");
}

// The node's bytes in the stage that keeps the fewest micro-batches alive.
std::int64_t least_bytes(const GraphNode& node, const PartitionOptions& options) {
  int live = options.live ? std::numeric_limits<int>::max() : 1;
  for (int stage = 0; options.live && stage < options.stages; ++stage)
    live = std::min(live, options.live(options.stages, stage));
  return node.weight_bytes + live * node.activation_bytes;
}

// How many ranks a node must be split over so that its share fits a device; 1: not split.
std::int64_t ranks_of(const GraphNode& node, const PartitionOptions& options) {
  if (options.memory_limit <= 0) return 1;
  const std::int64_t bytes = least_bytes(node, options);
  return std::max<std::int64_t>(1, (bytes + options.memory_limit - 1) / options.memory_limit);
}

// The secondary cost of a partition: bytes sent; then, for a chain, the sum of squared times, which
// makes the remaining stages even.
struct Cost {
  std::int64_t bytes = 0;
  double squares = 0;
  friend auto operator<=>(const Cost&, const Cost&) = default;
};

// The costs of one down-set.
struct LeftOfCut {
  double seconds = 0;
  std::int64_t weights = 0, activations = 0, sent = 0;
};

class Search {
 public:
  Search(const Graph& graph, const PartitionOptions& options, bool chain)
      : graph_(graph), options_(options), chain_(chain) {
    std::vector<std::int64_t> bytes(graph.nodes.size(), 0);
    for (const GraphValue& value : graph.values) bytes[at(value.from)] += value.bytes;
    for (const GraphNode& node : graph.nodes) ranks_.push_back(chain ? 1 : ranks_of(node, options));
    found_ = down_sets(reads_of(graph), bytes, std::max(kMostDownSets, 2 * graph.nodes.size() + 2));
    for (const NodeSet& set : found_.sets) left_.push_back(measured(set));
    within_.resize(found_.sets.size());
    for (std::size_t large = 1; large < found_.sets.size(); ++large)
      for (std::size_t small = 0; small < large; ++small)
        if (found_.sets[small].within(found_.sets[large]))
          within_[large].push_back(static_cast<std::uint32_t>(small));
  }

  bool exact() const { return found_.all; }

  /// The least possible time of the slowest stage; infinite if memory does not suffice.
  double slowest() const {
    std::vector<double> best(left_.size(), kNever);
    best[0] = 0;
    for (int stage = 0; stage < options_.stages; ++stage) {
      std::vector<double> next(left_.size(), kNever);
      for (std::size_t large = 1; large < left_.size(); ++large) {
        for (const std::uint32_t small : within_[large]) {
          const double seconds = std::max(best[small], left_[large].seconds - left_[small].seconds);
          if (seconds < next[large] && fits(stage, small, large)) next[large] = seconds;
        }
      }
      best = std::move(next);
    }
    return best.back();
  }

  /// Cuts of the partition that sends least, among those whose stages take at most `bound`.
  std::vector<std::size_t> cheapest(double bound) const {
    using Row = std::vector<std::optional<Cost>>;
    Row best(left_.size());
    best[0] = Cost{};
    std::vector<std::vector<std::uint32_t>> from;
    for (int stage = 0; stage < options_.stages; ++stage) {
      Row next(left_.size());
      from.emplace_back(left_.size(), 0);
      for (std::size_t large = 1; large < left_.size(); ++large) {
        for (const std::uint32_t small : within_[large]) {
          const double seconds = left_[large].seconds - left_[small].seconds;
          if (!best[small] || seconds > bound) continue;
          const Cost sum{best[small]->bytes + left_[large].sent,
                         best[small]->squares + (chain_ ? seconds * seconds : 0)};
          if ((next[large] && sum >= *next[large]) || !fits(stage, small, large)) continue;
          next[large] = sum;
          from.back()[large] = small;
        }
      }
      best = std::move(next);
    }
    std::vector<std::size_t> cuts = {left_.size() - 1};
    for (int stage = options_.stages - 1; stage >= 0; --stage)
      cuts.push_back(from[at(stage)][cuts.back()]);
    std::ranges::reverse(cuts);
    return cuts;  // the empty set, the left side of each cut, the whole set
  }

  GraphPartition partition(const std::vector<std::size_t>& cuts) const {
    GraphPartition result;
    result.exact = exact();
    result.stage_of.assign(graph_.nodes.size(), 0);
    for (int stage = 0; stage < options_.stages; ++stage) {
      const std::size_t small = cuts[at(stage)], large = cuts[at(stage) + 1];
      GraphStage one;
      one.seconds = left_[large].seconds - left_[small].seconds;
      one.memory_bytes = memory(stage, small, large);
      one.sent_bytes = left_[large].sent;
      for (std::size_t node = 0; node < graph_.nodes.size(); ++node) {
        if (!found_.sets[large].has(node) || found_.sets[small].has(node)) continue;
        one.nodes.push_back(static_cast<int>(node));
        result.stage_of[node] = stage;
      }
      result.stages.push_back(std::move(one));
    }
    return result;
  }

 private:
  LeftOfCut measured(const NodeSet& set) const {
    LeftOfCut left;
    for (std::size_t i = 0; i < graph_.nodes.size(); ++i) {
      if (!set.has(i)) continue;
      left.seconds += graph_.nodes[i].seconds;
      left.weights += (graph_.nodes[i].weight_bytes + ranks_[i] - 1) / ranks_[i];
      left.activations += (graph_.nodes[i].activation_bytes + ranks_[i] - 1) / ranks_[i];
    }
    for (const GraphValue& value : graph_.values) {
      const bool crosses = set.has(at(value.from)) &&
                           std::ranges::any_of(value.to, [&](int to) { return !set.has(at(to)); });
      if (crosses) left.sent += value.bytes;
    }
    return left;
  }

  std::int64_t memory(int stage, std::size_t small, std::size_t large) const {
    const int live = options_.live ? options_.live(options_.stages, stage) : 1;
    return left_[large].weights - left_[small].weights +
           live * (left_[large].activations - left_[small].activations);
  }
  bool fits(int stage, std::size_t small, std::size_t large) const {
    return options_.memory_limit == 0 || memory(stage, small, large) <= options_.memory_limit;
  }

  const Graph& graph_;
  const PartitionOptions& options_;
  const bool chain_;
  DownSets found_;
  std::vector<std::int64_t> ranks_;  // number of ranks per node
  std::vector<LeftOfCut> left_;
  std::vector<std::vector<std::uint32_t>> within_;  // for each set, its proper subsets
};

// Nodes that no stage can hold, or that alone would make their stage the slowest.
std::vector<SplitAdvice> suggestions_of(const Graph& graph, const PartitionOptions& options) {
  std::vector<SplitAdvice> found;
  double all = 0;
  for (const GraphNode& node : graph.nodes) all += node.seconds;
  const double fair = all / options.stages;
  for (std::size_t i = 0; i < graph.nodes.size(); ++i) {
    const GraphNode& node = graph.nodes[i];
    if (const std::int64_t ranks = ranks_of(node, options); ranks > 1) {
      const std::int64_t bytes = least_bytes(node, options);
      found.push_back({static_cast<int>(i), node.name + " alone takes " + bytes_text(bytes) +
                                                " of " + bytes_text(options.memory_limit) +
                                                ": split its layers over " + std::to_string(ranks) +
                                                " ranks (parallel.tensor)"});
    } else if (options.stages > 1 && node.seconds > 1.1 * fair) {
      const double shares = node.seconds / fair;
      found.push_back({static_cast<int>(i),
                       node.name + formatted(" alone takes %.2f ms, ", 1e3 * node.seconds) +
                           formatted("%.1f times a fair share: split its layers over ", shares) +
                           std::to_string(static_cast<int>(std::ceil(shares))) +
                           " ranks (parallel.tensor)"});
    }
  }
  return found;
}

}  // namespace

GraphPartition partition_graph(const Graph& graph, const PartitionOptions& options) {
  check(graph, options);
  const Search search(graph, options, false);
  const double slowest = search.slowest();
  const auto suggestions = suggestions_of(graph, options);
  if (slowest == kNever) {
    std::string advice = "Use more stages, smaller micro-batches or recomputation.";
    for (const SplitAdvice& one : suggestions) advice += "\n  " + one.why;
    refuse_memory(options, advice);
  }
  // Sums of the same times in different orders differ in their last bits.
  const double bound = slowest * (1 + options.slack) * (1 + 1e-12);
  GraphPartition partition = search.partition(search.cheapest(bound));
  partition.suggestions = suggestions;
  return partition;
}

std::optional<GraphPartition> cut_chain(const Graph& chain, const PartitionOptions& options) {
  const Search search(chain, options, true);
  const double slowest = search.slowest();
  if (slowest == kNever) return std::nullopt;
  return search.partition(search.cheapest(slowest * (1 + options.slack)));
}

std::string text_of(const GraphPartition& partition, const Graph& graph) {
  std::string text;
  for (std::size_t i = 0; i < partition.stages.size(); ++i) {
    const GraphStage& stage = partition.stages[i];
    text += "stage " + std::to_string(i) + formatted("  %.2f ms, ", 1e3 * stage.seconds) +
            bytes_text(stage.memory_bytes);
    if (i + 1 < partition.stages.size()) text += ", sends " + bytes_text(stage.sent_bytes);
    text += ":";
    for (int node : stage.nodes) text += " " + graph.nodes[at(node)].name;
    text += "\n";
  }
  text += imbalance_text(partition.slowest(), partition.mean());
  if (!partition.exact) text += "not all cuts were searched, because the graph has too many\n";
  for (const SplitAdvice& one : partition.suggestions) text += "split     " + one.why + "\n";
  return text;
}

}  // namespace trireme::inline v0::plan
