// Cuts a dataflow graph of blocks, with branches and skip connections, into stages that follow one
// another: no value goes back. The slowest stage takes as little time as possible, and within that
// (and the slack) as few bytes as possible cross the cuts, within the memory of each stage.
//
// Dynamic programming over down-sets, the sets of nodes that a cut can have on its left (Tarnawski
// et al., "Efficient Algorithms for Device Placement of DNN Graph Operators", arXiv 2006.16423,
// section 5). A node that no device can hold counts as split over as many ranks as can: its memory
// is a rank's part, its time stays whole; the result says so. Networks are narrow and have few of
// them; of a graph with more than kMostDownSets only the prefixes of some topological orders are
// looked at, and the result says so. Pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "trireme/plan/partition.h"

namespace trireme {
inline namespace v0 {
namespace plan {

/// Beyond it the search is over a part of them.
inline constexpr std::size_t kMostDownSets = 3000;

struct GraphNode {
  std::string name;
  double seconds = 0;  // measured, forward and backward of a micro-batch
  std::int64_t weight_bytes = 0, activation_bytes = 0;  // as in BlockCost
};

/// What a node makes and others read.
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
  /// Of all values that are made up to here and read later: each crosses this cut once, also on its
  /// way to a stage further on.
  std::int64_t sent_bytes = 0;
};

/// A node that should be cut horizontally, its layers split over ranks, and why.
struct SplitAdvice {
  int node = 0;
  std::string why;
};

struct GraphPartition {
  std::vector<GraphStage> stages;
  std::vector<int> stage_of;  // of each node
  bool exact = true;          // all down-sets were looked at
  std::vector<SplitAdvice> suggestions;

  double slowest() const noexcept;
  double mean() const noexcept;
  double imbalance() const noexcept { return mean() > 0 ? slowest() / mean() - 1 : 0; }
  std::int64_t sent_bytes() const noexcept;
};

/// ConfigError where the graph has a cycle, there are more stages than nodes, or memory does not
/// suffice (with what should be split).
GraphPartition partition_graph(const Graph& graph, const PartitionOptions& options);

/// A line a stage, the imbalance, the suggestions. Ends with a newline.
std::string text_of(const GraphPartition& partition, const Graph& graph);

}  // namespace plan
}  // namespace v0
}  // namespace trireme
