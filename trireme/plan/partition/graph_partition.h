// Cuts a dataflow graph of blocks, with branches and skip connections, into consecutive stages: no
// value goes back. Minimizes the time of the slowest stage; within that (and the slack), minimizes
// the bytes that cross the cuts. Respects the memory limit of each stage.
//
// Dynamic programming over down-sets, the sets of nodes that can be left of a cut (Tarnawski et
// al., "Efficient Algorithms for Device Placement of DNN Graph Operators", arXiv 2006.16423,
// section 5). A node that fits on no device is assumed to be split over as many ranks as it needs:
// its memory counts as one rank's share, its time stays whole, and the result says so. Typical
// networks are narrow and have few down-sets; in a graph with more than kMostDownSets only the
// prefixes of some topological orders are searched, and the result says so. Pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "trireme/plan/partition/partition.h"

namespace trireme::inline v0::plan {

/// With more down-sets, the search covers only some of them.
inline constexpr std::size_t kMostDownSets = 3000;

struct GraphNode {
  std::string name;
  double seconds = 0;  // measured, forward and backward of a micro-batch
  std::int64_t weight_bytes = 0, activation_bytes = 0;  // as in BlockCost
};

/// The output of a node and its readers.
struct GraphValue {
  int from = 0;
  std::vector<int> to;
  std::int64_t bytes = 0;  // of a micro-batch
};

struct Graph {
  std::vector<GraphNode> nodes;
  std::vector<GraphValue> values;
};

struct GraphStage {
  std::vector<int> nodes;  // ascending
  double seconds = 0;
  std::int64_t memory_bytes = 0;
  /// Values that are made up to this stage and read later. Each crosses this cut once, also on its
  /// way to a stage further on.
  std::int64_t sent_bytes = 0;
};

/// A node whose layers should be split over several ranks, and why.
struct SplitAdvice {
  int node = 0;
  std::string why;
};

struct GraphPartition : StageList<GraphStage> {
  std::vector<int> stage_of;  // of each node
  bool exact = true;          // all down-sets were searched
  std::vector<SplitAdvice> suggestions;
};

/// ConfigError if the graph has a cycle, if there are more stages than nodes, or if memory does not
/// suffice (the message says what to split).
GraphPartition partition_graph(const Graph& graph, const PartitionOptions& options);

/// For partition_chain(): cuts a chain whose nodes are not split into stages that are as even as
/// the bytes allow. nullopt if memory does not suffice.
std::optional<GraphPartition> cut_chain(const Graph& chain, const PartitionOptions& options);

/// One line per stage, the imbalance, the suggestions. Ends with a newline.
std::string text_of(const GraphPartition& partition, const Graph& graph);

}  // namespace trireme::inline v0::plan
