// Properties of partitions of chains and graphs: they cover everything in order without an empty
// stage, are no worse than the even cut, and on small inputs are the best of all there are.
#include "trireme/plan/partition/partition.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <array>
#include <limits>
#include <optional>
#include <tuple>

#include "tests/property/draw.h"
#include "trireme/base/error.h"
#include "trireme/plan/partition/graph_partition.h"

namespace trireme {
namespace {

using namespace plan;
using Stages = std::vector<int>;  // the stage of each node

std::size_t at(int index) { return static_cast<std::size_t>(index); }

struct Drawn {
  Graph graph;  // of a chain: each node but the last is read by the next one
  bool chain = false;
  PartitionOptions options;
};

// Values go to nodes of higher numbers. Costs are whole, so that sums are exact in any order.
Drawn draw(int most_of_chain, int most_of_graph, int most_stages) {
  Drawn drawn{.chain = *rc::gen::arbitrary<bool>().as("chain")};
  const int nodes = *in_range(1, (drawn.chain ? most_of_chain : most_of_graph) + 1).as("nodes");
  const auto costs = *rc::gen::container<std::vector<std::array<int, 4>>>(
                          at(nodes), rc::gen::container<std::array<int, 4>>(in_range(0, 10)))
                          .as("seconds, weights, activations and output of each");
  for (int from = 0; from < nodes; ++from) {
    const auto& [seconds, weights, activations, output] = costs[at(from)];
    drawn.graph.nodes.push_back({"n", static_cast<double>(seconds), weights, activations});
    GraphValue value{.from = from, .bytes = output};
    for (int to = from + 1; to < nodes; ++to)
      if (drawn.chain ? to == from + 1 : *rc::gen::arbitrary<bool>()) value.to.push_back(to);
    drawn.graph.values.push_back(value);
  }
  drawn.options.stages = *in_range(1, std::min(nodes, most_stages) + 1).as("stages");
  if (*rc::gen::arbitrary<bool>().as("1f1b"))
    drawn.options.live = [](int stages, int stage) { return stages - stage; };
  drawn.options.slack = *rc::gen::element(0.0, 0.25, 1.0).as("slack");
  return drawn;
}

struct Found {
  Stages stage_of;
  double slowest = 0;
  std::int64_t sent = 0;
};
Found partition(const Drawn& drawn) {
  Stages stage_of(drawn.graph.nodes.size(), -1);
  const auto put = [&](int node, int stage) {
    RC_ASSERT(std::exchange(stage_of.at(at(node)), stage) == -1);
  };
  if (!drawn.chain) {
    const GraphPartition found = partition_graph(drawn.graph, drawn.options);
    for (int stage = 0; stage < std::ssize(found.stages); ++stage)
      for (const int node : found.stages[at(stage)].nodes) put(node, stage);
    RC_ASSERT(found.stage_of == stage_of);
    return {stage_of, found.slowest(), found.sent_bytes()};
  }
  std::vector<BlockCost> blocks;
  for (const GraphNode& node : drawn.graph.nodes)
    blocks.push_back({node.name, node.seconds, node.weight_bytes, node.activation_bytes,
                      drawn.graph.values[blocks.size()].bytes});
  const Partition found = partition_chain(blocks, drawn.options);
  for (int stage = 0; stage < std::ssize(found.stages); ++stage)
    for (int i = found.stages[at(stage)].first; i < found.stages[at(stage)].end; ++i) put(i, stage);
  return {stage_of, found.slowest(), found.sent_bytes()};
}

struct Figures {
  double slowest = 0, squares = 0;
  std::int64_t memory = 0, bytes = 0;
};

// nullopt if a stage is empty or a value goes back. A value counts once for each cut it crosses.
std::optional<Figures> figures(const Drawn& drawn, const Stages& stage_of) {
  Figures all;
  for (int stage = 0; stage < drawn.options.stages; ++stage) {
    const int live = drawn.options.live ? drawn.options.live(drawn.options.stages, stage) : 1;
    if (std::find(stage_of.begin(), stage_of.end(), stage) == stage_of.end()) return std::nullopt;
    double seconds = 0;
    std::int64_t memory = 0;
    for (std::size_t i = 0; i < stage_of.size(); ++i) {
      if (stage_of[i] != stage) continue;
      const GraphNode& node = drawn.graph.nodes[i];
      seconds += node.seconds;
      memory += node.weight_bytes + live * node.activation_bytes;
    }
    all.slowest = std::max(all.slowest, seconds);
    all.squares += seconds * seconds;
    all.memory = std::max(all.memory, memory);
  }
  for (const GraphValue& value : drawn.graph.values) {
    const int from = stage_of[at(value.from)];
    int last = from;
    for (const int to : value.to) {
      if (stage_of[at(to)] < from) return std::nullopt;
      last = std::max(last, stage_of[at(to)]);
    }
    all.bytes += value.bytes * (last - from);
  }
  return all;
}

RC_GTEST_PROP(PartitionProperty, EverythingIsCoveredInOrderAndNoWorseThanEvenly, ()) {
  const Drawn drawn = draw(50, 10, 50);
  const Found found = partition(drawn);
  const auto expected = figures(drawn, found.stage_of);
  RC_ASSERT(expected.has_value());
  RC_ASSERT(found.slowest == expected->slowest);
  RC_ASSERT(found.sent == expected->bytes);
  const int nodes = static_cast<int>(drawn.graph.nodes.size());
  Stages even;
  for (int i = 0; i < nodes; ++i) even.push_back(i * drawn.options.stages / nodes);
  RC_ASSERT(found.slowest <= figures(drawn, even)->slowest * (1 + drawn.options.slack));
}

RC_GTEST_PROP(PartitionProperty, NoneOfAllPartitionsIsBetter, ()) {
  Drawn drawn = draw(8, 6, 4);
  // (A graph's node that no device can hold is split, which the figures here do not know.)
  const std::int64_t limit = drawn.chain ? *in_range(0, 80).as("memory limit") : 0;
  drawn.options.memory_limit = limit;
  std::vector<Figures> all;
  Stages stage_of(drawn.graph.nodes.size(), 0);
  for (std::size_t i = 0; i < stage_of.size();) {
    const auto one = figures(drawn, stage_of);
    if (one && (limit == 0 || one->memory <= limit)) all.push_back(*one);
    for (i = 0; i < stage_of.size() && ++stage_of[i] == drawn.options.stages; ++i) stage_of[i] = 0;
  }
  if (all.empty()) {
    RC_ASSERT_THROWS_AS(partition(drawn), ConfigError);
    return;
  }
  const auto found = figures(drawn, partition(drawn).stage_of);
  RC_ASSERT(limit == 0 || found->memory <= limit);
  double slowest = std::numeric_limits<double>::infinity();
  for (const Figures& one : all) slowest = std::min(slowest, one.slowest);
  const double bound = slowest * (1 + drawn.options.slack);
  RC_ASSERT(found->slowest <= bound);
  // Within the slack: the fewest bytes; of a chain also the most even one of these.
  for (const Figures& one : all) {
    RC_ASSERT(one.slowest > bound || found->bytes <= one.bytes);
    RC_ASSERT(one.slowest > bound || found->bytes < one.bytes || !drawn.chain ||
              found->squares <= one.squares);
  }
}

}  // namespace
}  // namespace trireme
