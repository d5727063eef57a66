#include "trireme/plan/partition/graph_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trireme/base/error.h"

namespace trireme {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using namespace plan;

std::string refusal(const std::string& text) {
  try {
    parse_graph(text, "net.txt");
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "nothing was thrown";
}

TEST(GraphText, IsRead) {
  const Graph graph = parse_graph(
      "# two blocks and a skip\n"
      "node stem 2ms 40kB 12MB\n"
      "node conv 1.5ms\n"
      "node add 0ms 0 1MiB   # an addition\n"
      "value stem 3MB conv add\n"
      "value conv 100\n");
  ASSERT_EQ(graph.nodes.size(), 3u);
  EXPECT_DOUBLE_EQ(graph.nodes[1].seconds, 0.0015);
  EXPECT_EQ(graph.nodes[0].weight_bytes, 40'000);
  EXPECT_EQ(graph.nodes[2].activation_bytes, 1 << 20);
  EXPECT_EQ(graph.values[0].bytes, 3'000'000);
  EXPECT_THAT(graph.values[0].to, ElementsAre(1, 2));
  EXPECT_TRUE(graph.values[1].to.empty());
}

TEST(GraphText, IsWrittenAsItIsRead) {
  Graph graph;
  graph.nodes = {{"stem", 0.0021, 40'000, 12'000'000}, {"conv", 1e-7, 0, 3}, {"add", 0, 0, 0}};
  graph.values = {{0, {1, 2}, 3'000'000}, {1, {2}, 100}, {2, {}, 7}};
  const std::string text = text_of(graph);
  const Graph again = parse_graph(text);
  ASSERT_EQ(again.nodes.size(), 3u);
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(again.nodes[i].name, graph.nodes[i].name);
    EXPECT_DOUBLE_EQ(again.nodes[i].seconds, graph.nodes[i].seconds);
    EXPECT_EQ(again.nodes[i].weight_bytes, graph.nodes[i].weight_bytes);
    EXPECT_EQ(again.nodes[i].activation_bytes, graph.nodes[i].activation_bytes);
  }
  ASSERT_EQ(again.values.size(), 2u) << text;
  EXPECT_EQ(again.values[0].bytes, 3'000'000);
  EXPECT_THAT(again.values[0].to, ElementsAre(1, 2));
  graph.nodes[0].name = "two words";
  EXPECT_THROW(text_of(graph), ConfigError);
}

TEST(GraphText, WrongLinesAreRefusedWithTheirNumber) {
  EXPECT_THAT(refusal(""), HasSubstr("there is no node"));
  EXPECT_THAT(refusal("node a 1ms\nnode a 1ms\n"), HasSubstr("net.txt:2: node a occurs twice"));
  EXPECT_THAT(refusal("node a 1ms\nvalue a 1 b\n"), HasSubstr("net.txt:2: there is no node b"));
  EXPECT_THAT(refusal("node a\n"), HasSubstr("net.txt:1: \"node\" with 1 words"));
  EXPECT_THAT(refusal("edge a b 1\n"), HasSubstr("\"edge\" with 3 words"));
  EXPECT_THAT(refusal("node a fast\n"), HasSubstr("\"fast\" is not a time"));
  EXPECT_THAT(refusal("node a -1ms\n"), HasSubstr("not a time"));
  EXPECT_THAT(refusal("node a 1ms big\n"), HasSubstr("\"big\" is not a size"));
  EXPECT_THAT(refusal("node a 1ms\nnode b fast\n"), HasSubstr("net.txt:2: \"fast\" is not a time"));
  EXPECT_THAT(refusal("node a 1ms\nvalue a big\n"), HasSubstr("net.txt:2: \"big\" is not a size"));
  EXPECT_THAT(refusal("node a 1ms 1kB big\n"), HasSubstr("net.txt:1: \"big\" is not a size"));
}

}  // namespace
}  // namespace trireme
