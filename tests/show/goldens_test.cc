// The exact output of `trireme show` for 2, 3, 4, 5 and 8 ranks. After an intended change run
// tools/update_pictures and look at the difference.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <utility>

#include "trireme/plan/link.h"
#include "trireme/plan/mixing.h"
#include "trireme/plan/partition/graph_text.h"
#include "trireme/plan/schedule/generators/schedules.h"
#include "trireme/show/collective/collective.h"
#include "trireme/show/collective/cost.h"
#include "trireme/show/collective/gossip.h"
#include "trireme/show/collective/recording.h"
#include "trireme/show/collective/tree_sum.h"
#include "trireme/show/drawing/picture.h"
#include "trireme/show/graph_picture.h"
#include "trireme/show/schedule/drawn_schedule.h"
#include "trireme/show/strategies.h"

namespace trireme {
namespace {

namespace fs = std::filesystem;
using namespace show;

std::string read(const fs::path& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

// With TRIREME_UPDATE_GOLDENS the file is written; otherwise it must exist and be equal.
void compare(const fs::path& path, const std::string& text) {
  if (std::getenv("TRIREME_UPDATE_GOLDENS") != nullptr) std::ofstream(path) << text;
  EXPECT_TRUE(fs::exists(path)) << "tools/update_pictures writes " << path;
  EXPECT_EQ(read(path), text) << path;
}

Recording recorded(comm::OpKind kind, const std::string& algorithm, int ranks) {
  const auto* entry = comm::find_algorithm(kind, algorithm);  // null: direct
  return record({.kind = kind,
                 .algorithm = algorithm,
                 .ranks = ranks,
                 .hosts = entry && entry->by_hosts ? 2 : 1});
}

// The drawing of `trireme show schedule NAME --stages N`.
DrawnSchedule simulated(const plan::ScheduleEntry& entry, int stages) {
  return draw(std::string(entry.name), std::string(entry.about),
              plan::make_schedule(entry.name, {.stages = stages, .microbatches = 8}), {});
}

TEST(Goldens, AreWhatIsRecorded) {
  for (comm::OpKind kind : drawn_kinds()) {
    for (const auto* entry : comm::algorithms_of(kind)) {
      for (int ranks : {2, 3, 4, 5, 8}) {
        const std::string name = title_of(kind) + "-" + entry->name + "-" + std::to_string(ranks);
        compare(fs::path(GOLDEN_FOLDER) / (name + ".txt"),
                text_of(recorded(kind, entry->name, ranks), plan::kDefaultLink, 1 << 20));
      }
    }
  }
}

TEST(Goldens, DirectIsWhatIsRecorded) {
  for (int ranks : {2, 3, 4, 5, 8}) {
    compare(
        fs::path(GOLDEN_FOLDER) / ("all-reduce-direct-" + std::to_string(ranks) + ".txt"),
        text_of(recorded(comm::OpKind::AllReduce, "direct", ranks), plan::kDefaultLink, 1 << 20));
  }
}

TEST(Goldens, SchedulesAreWhatIsSimulated) {
  for (const plan::ScheduleEntry& entry : plan::schedules()) {
    for (int stages : {2, 4, 8}) {
      compare(fs::path(GOLDEN_FOLDER) /
                  ("schedule-" + std::string(entry.name) + "-" + std::to_string(stages) + ".txt"),
              text_of(simulated(entry, stages)));
    }
  }
}

// The schedules that the documentation shows.
TEST(Goldens, SchedulePicturesAreWhatIsSimulated) {
  for (const plan::ScheduleEntry& entry : plan::schedules()) {
    compare(fs::path(PICTURE_FOLDER) / ("schedule-" + std::string(entry.name) + ".svg"),
            svg_of(simulated(entry, entry.chunks == plan::Chunks::One ? 4 : 8)));
  }
}

// The table and the rounds of all-reduces in docs/algorithms.md.
TEST(Goldens, TheTableOfAllReducesIsWhatIsRegistered) {
  std::string table = "| algorithm | rounds after the header | sent | added |\n|---|---|---|---|\n";
  std::string rounds;
  for (const auto* entry : comm::algorithms_of(comm::OpKind::AllReduce)) {
    EXPECT_FALSE(entry->formulas.empty()) << entry->name;
    for (const comm::CostRow& row : entry->formulas)
      table += "| `" + entry->name + "`" + row.when + " | " + row.rounds + " | " + row.sent +
               " | " + row.added + " |\n";
    rounds +=
        "<details><summary>" + entry->name + " on 4 ranks (<code>trireme show all-reduce " +
        entry->name + " --ranks 4" + (entry->by_hosts ? " --hosts 2" : "") +
        "</code>)</summary>\n\n```text\n" +
        text_of(recorded(comm::OpKind::AllReduce, entry->name, 4), plan::kDefaultLink, 1 << 20) +
        "```\n</details>\n\n";
  }
  compare(
      fs::path(GOLDEN_FOLDER) / "all-reduces.md",
      table +
          "| `direct` in place (shared memory) | 1 (flags) | 0; 2nS of memory traffic in all | "
          "1/n |\n| `direct` staged | 2 per piece, overlapped | 0; 2(n−1)/n copied in and out | "
          "1/n |\n");
  compare(fs::path(GOLDEN_FOLDER) / "all-reduce-rounds.md", rounds);
}

// The table and the list of pictures in docs/schedules.md.
TEST(Goldens, TheTableOfSchedulesIsWhatIsRegistered) {
  std::string table =
      "| schedule | bubble, for equal times | live activations of a rank | source |\n"
      "|---|---|---|---|\n";
  std::string pictures;
  for (const plan::ScheduleEntry& entry : plan::schedules()) {
    const std::string name(entry.name), number(entry.source.substr(entry.source.find(' ') + 1));
    table += "| `" + name + "`" + (entry.chunks == plan::Chunks::Two ? " (2 chunks)" : "") + " | " +
             std::string(entry.bubble) + " | " + std::string(entry.live) + " | ";
    if (!number.empty()) table += "[" + number + "](https://arxiv.org/abs/" + number + ") ";
    table += "|\n";
    pictures += "![" + name + "](images/schedule-" + name + ".svg)\n";
  }
  compare(fs::path(GOLDEN_FOLDER) / "schedules.md", table);
  compare(fs::path(GOLDEN_FOLDER) / "schedule-pictures.md", pictures);
}

TEST(Goldens, PicturesAreWhatIsRecorded) {
  for (const char* algorithm : {"ring", "hierarchical"}) {
    compare(fs::path(PICTURE_FOLDER) / ("all-reduce-" + std::string(algorithm) + "-4.svg"),
            svg_of(recorded(comm::OpKind::AllReduce, algorithm, 4), plan::kDefaultLink, 1 << 20));
  }
}

TEST(Goldens, GossipIsWhatIsRecorded) {
  for (const std::string& graph : plan::mixing_graphs())
    for (const int ranks : {3, 5, 8})
      compare(fs::path(GOLDEN_FOLDER) / ("gossip-" + graph + "-" + std::to_string(ranks) + ".txt"),
              text_of(record_gossip({.graph = graph, .ranks = ranks})));
  for (const char* graph : {"ring", "one_peer"})
    compare(fs::path(PICTURE_FOLDER) / ("gossip-" + std::string(graph) + "-8.svg"),
            svg_of(record_gossip({.graph = graph, .ranks = 8})));
}

// The table, the pictures and the commands in docs/strategies.md.
TEST(Goldens, StrategiesAreWhatTheirTableSays) {
  std::string pictures;
  for (const plan::NamedStrategy& one : plan::named_strategies()) {
    const StrategyDrawing drawing = draw_strategy(one.name, 0);
    compare(fs::path(GOLDEN_FOLDER) / ("strategy-" + one.name + ".txt"), text_of(drawing));
    compare(fs::path(PICTURE_FOLDER) / ("strategy-" + one.name + ".svg"), svg_of(drawing));
    pictures += "## " + one.name + "\n\n![" + one.name + "](images/strategy-" + one.name +
                ".svg)\n\n```\n$ trireme show strategies " + one.name + "\n" + text_of(drawing) +
                "```\n\n";
  }
  compare(fs::path(GOLDEN_FOLDER) / "strategies.md", strategies_markdown());
  compare(fs::path(GOLDEN_FOLDER) / "strategy-pictures.md", pictures);
}

// `trireme show tree-sum`, as in docs/concepts.md.
TEST(Goldens, TreeSumIsWhatIsRecorded) {
  std::vector<TreeSum> sums;
  for (const int ranks : {1, 2, 3, 4}) sums.push_back(record_tree_sum(ranks, 8));
  compare(fs::path(GOLDEN_FOLDER) / "tree-sum-8.txt", text_of(sums));
  compare(fs::path(PICTURE_FOLDER) / "tree-sum.svg", svg_of(sums));
}

// `trireme show partition configs/graphs/NAME.txt --stages N`, as text and as the documentation's
// picture.
TEST(Goldens, PartitionsAreWhatIsFound) {
  for (const auto& [name, stages] : {std::pair{"resnet", 2}, {"amoebanet", 4}, {"dlrm", 3}}) {
    const plan::Graph graph =
        plan::parse_graph(read(fs::path(GRAPH_FOLDER) / (std::string(name) + ".txt")));
    const plan::GraphPartition partition = plan::partition_graph(graph, {.stages = stages});
    compare(fs::path(GOLDEN_FOLDER) / ("partition-" + std::string(name) + ".txt"),
            plan::text_of(partition, graph));
    compare(fs::path(PICTURE_FOLDER) / ("partition-" + std::string(name) + ".svg"),
            svg_of(graph, partition));
  }
}

}  // namespace
}  // namespace trireme
