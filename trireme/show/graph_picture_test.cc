// The picture of a partitioned graph: labels do not overlap, and nothing is missing.
#include "trireme/show/graph_picture.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <random>
#include <sstream>

#include "trireme/show/drawing/legible_test.h"

namespace trireme {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using namespace show;

plan::Graph random_graph(std::mt19937& random, int nodes) {
  plan::Graph graph;
  for (int i = 0; i < nodes; ++i) {
    graph.nodes.push_back(
        {"node" + std::to_string(i), 1e-3 * static_cast<double>(random() % 20), 1'000'000, 0});
    plan::GraphValue value{.from = i, .bytes = 500'000};
    for (int to = i + 1; to < std::min(nodes, i + 5); ++to) {
      if (random() % 2 == 0) value.to.push_back(to);
    }
    graph.values.push_back(value);
  }
  return graph;
}

TEST(GraphPicture, LabelsStandApart) {
  std::mt19937 random(3);
  for (int round = 0; round < 20; ++round) {
    const plan::Graph graph = random_graph(random, 6 + round);
    for (int stages : {1, 2, 5}) {
      SCOPED_TRACE(std::to_string(round) + ", " + std::to_string(stages));
      expect_legible(svg_of(graph, plan::partition_graph(graph, {.stages = stages})));
    }
  }
}

TEST(GraphPicture, ANodeThatShouldBeSplitIsRed) {
  plan::Graph graph;
  graph.nodes = {{"small", 0.001, 0, 0}, {"huge", 0.009, 0, 0}};
  graph.values = {{0, {1}, 1'500'000}};
  const auto one = plan::partition_graph(graph, {.stages = 1});
  EXPECT_THAT(svg_of(graph, one), Not(HasSubstr("#d62728")));
  EXPECT_THAT(svg_of(graph, one), HasSubstr(">2 nodes in 1 stage, imbalance"));
  const auto two = plan::partition_graph(graph, {.stages = 2});
  EXPECT_THAT(svg_of(graph, two), HasSubstr("#d62728"));
  EXPECT_THAT(svg_of(graph, two), HasSubstr(">1.5 MB</text>"));
}

// They were "0.00 ms" and "0.0 MB".
TEST(GraphPicture, SmallFiguresAreWritten) {
  plan::Graph graph;
  graph.nodes = {{"a", 2e-6, 300, 0}, {"b", 3e-6, 0, 0}};
  graph.values = {{0, {1}, 28'000}};
  const std::string svg = svg_of(graph, plan::partition_graph(graph, {.stages = 2}));
  for (const char* figure : {">2 us<", ">stage 0: 2 us, 300 bytes<", ">28.0 kB<"})
    EXPECT_THAT(svg, HasSubstr(figure));
}

// Names come from a file, which may be in any encoding.
TEST(GraphPicture, ANameMayHaveAnyBytes) {
  plan::Graph graph;
  graph.nodes = {{"caf\xe9", 0.001, 0, 0}, {"huge\xe9", 0.009, 0, 0}};
  graph.values = {{0, {1}, 1'500'000}};
  const auto two = plan::partition_graph(graph, {.stages = 2});
  EXPECT_THAT(json_of(graph, two), HasSubstr(R"("nodes":["caf\\xe9"])"));
  EXPECT_THAT(svg_of(graph, two), HasSubstr(">caf\uFFFD<"));
}

TEST(GraphPicture, JsonHoldsEveryNode) {
  std::mt19937 random(5);
  const plan::Graph graph = random_graph(random, 9);
  std::istringstream lines(json_of(graph, plan::partition_graph(graph, {.stages = 3})));
  std::size_t nodes = 0;
  nlohmann::json last;
  for (std::string line; std::getline(lines, line);) {
    last = nlohmann::json::parse(line);
    if (last["event"] == "stage") nodes += last["nodes"].size();
  }
  EXPECT_EQ(nodes, 9u);
  EXPECT_EQ(last["event"], "cost");
  EXPECT_EQ(last["exact"], true);
}

}  // namespace
}  // namespace trireme
