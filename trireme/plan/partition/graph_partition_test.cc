// Compares the partition of a graph with every possible one, with that of a chain, and checks it on
// the shapes of real networks.
#include "trireme/plan/partition/graph_partition.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <random>
#include <utility>

#include "trireme/base/error.h"
#include "trireme/plan/partition/down_sets.h"

namespace trireme {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using namespace plan;

Graph random_graph(std::mt19937& random, int nodes) {
  Graph graph;
  for (int i = 0; i < nodes; ++i) {
    graph.nodes.push_back({"n" + std::to_string(i), static_cast<double>(random() % 6),
                           static_cast<std::int64_t>(random() % 5),
                           static_cast<std::int64_t>(random() % 5)});
    GraphValue value{.from = i, .bytes = static_cast<std::int64_t>(1 + random() % 9)};
    for (int to = i + 1; to < nodes; ++to) {
      if (random() % 3 == 0) value.to.push_back(to);
    }
    if (!value.to.empty()) graph.values.push_back(value);
  }
  return graph;
}

struct Best {
  double slowest = std::numeric_limits<double>::infinity();
  std::int64_t bytes = std::numeric_limits<std::int64_t>::max();
};

// Bytes over all cuts, counting each value once per cut; -1 if a value goes back.
std::int64_t sent_bytes(const Graph& graph, const std::vector<int>& stage_of) {
  std::int64_t sum = 0;
  for (const GraphValue& value : graph.values) {
    const int from = stage_of[static_cast<std::size_t>(value.from)];
    int last = from;
    for (int to : value.to) {
      const int stage = stage_of[static_cast<std::size_t>(to)];
      if (stage < from) return -1;
      last = std::max(last, stage);
    }
    sum += value.bytes * (last - from);
  }
  return sum;
}

// Tries all ways to give each node a stage.
Best exhaustive(const Graph& graph, const PartitionOptions& options) {
  const std::size_t nodes = graph.nodes.size(), stages = static_cast<std::size_t>(options.stages);
  Best best;
  for (int pass = 0; pass < 2; ++pass) {  // first the slowest stage, then the traffic within it
    std::vector<int> stage_of(nodes, 0);
    for (std::size_t i = 0; i < nodes;) {
      const std::int64_t sent = sent_bytes(graph, stage_of);
      std::vector<double> seconds(stages, 0);
      std::vector<std::int64_t> memory(stages, 0);
      std::vector<int> count(stages, 0);
      for (std::size_t n = 0; n < nodes; ++n) {
        const auto stage = static_cast<std::size_t>(stage_of[n]);
        const int live = options.live ? options.live(options.stages, stage_of[n]) : 1;
        seconds[stage] += graph.nodes[n].seconds;
        memory[stage] += graph.nodes[n].weight_bytes + live * graph.nodes[n].activation_bytes;
        ++count[stage];
      }
      const double slowest = *std::max_element(seconds.begin(), seconds.end());
      const bool good = sent >= 0 && *std::min_element(count.begin(), count.end()) > 0 &&
                        (options.memory_limit == 0 ||
                         *std::max_element(memory.begin(), memory.end()) <= options.memory_limit);
      if (good && pass == 0) best.slowest = std::min(best.slowest, slowest);
      if (good && pass == 1 && slowest <= best.slowest * (1 + options.slack)) {
        best.bytes = std::min(best.bytes, sent);
      }
      for (i = 0; i < nodes && ++stage_of[i] == options.stages; ++i) stage_of[i] = 0;
    }
  }
  return best;
}

// Reduces each node that no device can hold to one rank's share. (The last stage keeps one
// micro-batch alive.)
Graph in_parts(Graph graph, std::int64_t limit) {
  for (GraphNode& node : graph.nodes) {
    const std::int64_t bytes = node.weight_bytes + node.activation_bytes;
    std::int64_t ranks = 1;
    while (limit > 0 && ranks * limit < bytes) ++ranks;
    node.weight_bytes = (node.weight_bytes + ranks - 1) / ranks;
    node.activation_bytes = (node.activation_bytes + ranks - 1) / ranks;
  }
  return graph;
}

TEST(GraphPartition, IsTheBestOfAllThereAre) {
  std::mt19937 random(6);
  int refused = 0;
  for (int round = 0; round < 300; ++round) {
    SCOPED_TRACE("round " + std::to_string(round));
    const int nodes = 1 + static_cast<int>(random() % 7);
    const Graph graph = random_graph(random, nodes);
    PartitionOptions options{.stages = 1 + static_cast<int>(random() % 3)};
    options.stages = std::min(options.stages, nodes);
    if (round % 2 == 1) options.live = [](int stages, int stage) { return stages - stage; };
    if (round % 3 == 1) options.memory_limit = 4 + static_cast<std::int64_t>(random() % 30);
    if (round % 5 == 1) options.slack = 0.5;
    const Best best = exhaustive(in_parts(graph, options.memory_limit), options);
    if (best.slowest == std::numeric_limits<double>::infinity()) {
      EXPECT_THROW(partition_graph(graph, options), ConfigError);
      ++refused;
      continue;
    }
    const GraphPartition found = partition_graph(graph, options);
    EXPECT_TRUE(found.exact);
    EXPECT_LE(found.slowest(), best.slowest * (1 + options.slack));
    EXPECT_EQ(found.sent_bytes(), best.bytes);
    EXPECT_EQ(sent_bytes(graph, found.stage_of), best.bytes);
    for (const GraphStage& stage : found.stages) {
      EXPECT_FALSE(stage.nodes.empty());
      if (options.memory_limit > 0) {
        EXPECT_LE(stage.memory_bytes, options.memory_limit);
      }
    }
  }
  EXPECT_GT(refused, 10);  // both ways are tested
  EXPECT_LT(refused, 100);
}

TEST(GraphPartition, OfAChainIsThatOfTheChain) {
  std::mt19937 random(7);
  for (int round = 0; round < 50; ++round) {
    Graph graph;
    std::vector<BlockCost> blocks;
    for (int i = 0; i < 30; ++i) {
      blocks.push_back({"b", static_cast<double>(random() % 50), 0, 0,
                        static_cast<std::int64_t>(random() % 90)});
      graph.nodes.push_back({"b", blocks.back().seconds, 0, 0});
      if (i < 29) graph.values.push_back({i, {i + 1}, blocks.back().output_bytes});
    }
    const PartitionOptions options{.stages = 5};
    const Partition chain = partition_chain(blocks, options);
    const GraphPartition found = partition_graph(graph, options);
    EXPECT_EQ(found.slowest(), chain.slowest());
    EXPECT_EQ(found.sent_bytes(), chain.sent_bytes());
  }
}

// Cutting inside a residual block sends its input and its inner value.
TEST(GraphPartition, AResNetIsCutBetweenItsBlocks) {
  Graph graph;
  graph.nodes.push_back({"stem", 1, 0, 0});
  int block_input = 0;
  for (int block = 0; block < 4; ++block) {
    const int first = static_cast<int>(graph.nodes.size());
    const std::string name = "block" + std::to_string(block);
    graph.nodes.push_back({name + ".conv1", 1, 0, 0});
    graph.nodes.push_back({name + ".conv2", 1, 0, 0});
    graph.nodes.push_back({name + ".add", 0, 0, 0});
    graph.values.push_back({block_input, {first, first + 2}, 100});
    graph.values.push_back({first, {first + 1}, 100});
    graph.values.push_back({first + 1, {first + 2}, 100});
    block_input = first + 2;
  }
  const GraphPartition found = partition_graph(graph, {.stages = 2});
  EXPECT_EQ(found.slowest(), 5);
  EXPECT_EQ(found.sent_bytes(), 100);  // 200 inside of a block
  EXPECT_THAT(found.stages[0].nodes, ElementsAre(0, 1, 2, 3, 4, 5, 6));
}

// Two towers that meet: one stage each would be balanced, but stages are consecutive.
TEST(GraphPartition, TwoTowersOfADlrm) {
  Graph graph;
  graph.nodes = {{"dense0", 2, 0, 0},  {"dense1", 2, 0, 0},   {"sparse0", 2, 0, 0},
                 {"sparse1", 2, 0, 0}, {"interact", 1, 0, 0}, {"top", 3, 0, 0}};
  graph.values = {{0, {1}, 64}, {1, {4}, 64}, {2, {3}, 512}, {3, {4}, 512}, {4, {5}, 100}};
  const GraphPartition found = partition_graph(graph, {.stages = 3});
  EXPECT_EQ(found.slowest(), 4);
  // The sparse tower comes second: its output is large and crosses one cut, not two.
  EXPECT_THAT(found.stage_of, ElementsAre(0, 0, 1, 1, 2, 2));
  EXPECT_EQ(found.sent_bytes(), 64 + (64 + 512));
}

// Cells of AmoebaNet-D: each reads the two before it.
TEST(GraphPartition, CellsThatReadTheTwoBefore) {
  Graph graph;
  for (int cell = 0; cell < 24; ++cell) {
    graph.nodes.push_back({"cell" + std::to_string(cell), 1, 0, 0});
    GraphValue value{.from = cell, .bytes = 10};
    for (int to : {cell + 1, cell + 2}) {
      if (to < 24) value.to.push_back(to);
    }
    if (!value.to.empty()) graph.values.push_back(value);
  }
  const GraphPartition found = partition_graph(graph, {.stages = 4});
  EXPECT_EQ(found.slowest(), 6);
  EXPECT_EQ(found.sent_bytes(), 3 * 20);
}

TEST(GraphPartition, AWideGraphIsCutByPartOfItsDownSets) {
  // 40 branches of two nodes: 3^40 down-sets.
  Graph graph;
  graph.nodes.push_back({"in", 0, 0, 0});
  GraphValue in{.from = 0, .bytes = 1};
  for (int branch = 0; branch < 40; ++branch) {
    const int first = 1 + 2 * branch;
    graph.nodes.push_back({"a", 1, 0, 0});
    graph.nodes.push_back({"b", 1, 0, 0});
    in.to.push_back(first);
    graph.values.push_back({first, {first + 1}, 1000});
    graph.values.push_back({first + 1, {81}, 10});
  }
  graph.nodes.push_back({"out", 0, 0, 0});
  graph.values.push_back(in);
  const GraphPartition found = partition_graph(graph, {.stages = 4});
  EXPECT_FALSE(found.exact);
  EXPECT_EQ(found.slowest(), 20);
  EXPECT_LT(found.sent_bytes(), 1000);  // no branch is cut in its middle
  EXPECT_THAT(text_of(found, graph), HasSubstr("not all cuts were searched"));
}

TEST(GraphPartition, SuggestsHorizontalCuts) {
  Graph graph;
  graph.nodes = {{"small", 0.001, 1'000'000, 0}, {"huge", 0.009, 9'000'000, 0}};
  graph.values = {{0, {1}, 10}};
  const GraphPartition slow = partition_graph(graph, {.stages = 2});
  ASSERT_EQ(slow.suggestions.size(), 1u);
  EXPECT_EQ(slow.suggestions[0].node, 1);
  EXPECT_THAT(slow.suggestions[0].why, HasSubstr("huge alone takes 9.00 ms, 1.8 times"));
  EXPECT_THAT(text_of(slow, graph), HasSubstr("over 2 ranks (parallel.tensor)"));
  // No device holds it whole: three ranks hold a third each and form one stage.
  const GraphPartition large = partition_graph(graph, {.stages = 2, .memory_limit = 4'000'000});
  EXPECT_EQ(large.stages[1].memory_bytes, 3'000'000);
  EXPECT_DOUBLE_EQ(large.stages[1].seconds, 0.009);
  ASSERT_EQ(large.suggestions.size(), 1u);
  EXPECT_THAT(large.suggestions[0].why,
              HasSubstr("huge alone takes 9.0 MB of 4.0 MB: split its layers over 3 ranks"));
  try {
    partition_graph(graph, {.stages = 1, .memory_limit = 3'900'000});
    FAIL();
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("1 stage does not fit into 3.9 MB each"),
                                    HasSubstr("huge alone takes 9.0 MB of 3.9 MB")));
  }
  // A stage keeps as many micro-batches alive as the schedule requires.
  graph.nodes[1] = {"huge", 0.009, 0, 3'000'000};
  PartitionOptions options{.stages = 2, .memory_limit = 4'000'000};
  options.live = [](int stages, int stage) { return stages - stage; };
  EXPECT_THAT(text_of(partition_graph(graph, options), graph), Not(HasSubstr("of 4.0 MB")));
  options.live = [](int, int) { return 3; };
  EXPECT_THAT(text_of(partition_graph(graph, options), graph),
              HasSubstr("huge alone takes 9.0 MB of 4.0 MB: split its layers over 3 ranks"));
  EXPECT_THAT(partition_graph(graph, {.stages = 1}).suggestions, IsEmpty());
}

TEST(GraphPartition, RefusesWhatIsNoGraph) {
  const auto refusal = [](const Graph& graph, int stages) -> std::string {
    try {
      partition_graph(graph, {.stages = stages});
    } catch (const ConfigError& error) {
      return error.what();
    }
    return "nothing was thrown";
  };
  Graph graph;
  graph.nodes = {{"a", 1, 0, 0}, {"b", 1, 0, 0}, {"c", 1, 0, 0}};
  graph.values = {{0, {1}, 1}, {1, {2}, 1}, {2, {1}, 1}};
  EXPECT_THAT(refusal(graph, 1), HasSubstr("cycle through or before node b"));
  graph.values = {{0, {3}, 1}};
  EXPECT_THAT(refusal(graph, 1), HasSubstr("no node"));
  graph.values.clear();
  EXPECT_THAT(refusal(graph, 4), HasSubstr("4 stages of 3 nodes"));
  graph.nodes[0].seconds = -1;
  EXPECT_THAT(refusal(graph, 1), HasSubstr("node a has a cost that is negative"));
}

TEST(DownSets, OfSmallGraphs) {
  const std::vector<std::int64_t> bytes(3, 1);
  EXPECT_EQ(down_sets({{}, {0}, {1}}, bytes, 100).sets.size(), 4u);  // a chain
  EXPECT_EQ(down_sets({{}, {}, {}}, bytes, 100).sets.size(), 8u);    // nothing in common
  EXPECT_EQ(down_sets({{}, {0}, {0}}, bytes, 100).sets.size(), 5u);  // a fork
  EXPECT_FALSE(down_sets({{}, {}, {}}, bytes, 7).all);
  EXPECT_THAT(topological_order({{1}, {}, {0}}), ElementsAre(1, 0, 2));
}

// Networks are narrow, so searching all down-sets is cheap (docs/design/018-schedules-and-cuts.md).
TEST(DownSets, OfAResNet50) {
  Reads reads = {{}};  // the stem
  int input = 0;
  const auto node = [&](std::vector<int> from) {
    reads.push_back(std::move(from));
    return static_cast<int>(reads.size()) - 1;
  };
  for (int blocks : {3, 4, 6, 3}) {
    for (int block = 0; block < blocks; ++block) {
      const int third = node({node({node({input})})});
      const int shortcut = block == 0 ? node({input}) : input;
      input = node({third, shortcut});
    }
  }
  node({input});  // the head
  const DownSets found =
      down_sets(reads, std::vector<std::int64_t>(reads.size(), 1), kMostDownSets);
  EXPECT_EQ(reads.size(), 70u);
  EXPECT_TRUE(found.all);
  EXPECT_EQ(found.sets.size(), 83u);
}

}  // namespace
}  // namespace trireme
