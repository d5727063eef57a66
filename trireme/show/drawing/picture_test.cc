// The pictures of every algorithm: labels do not overlap and stay on the sheet; the page is
// self-contained. (tests/show has the goldens, and the page in a real browser.)
#include "trireme/show/drawing/picture.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <regex>
#include <sstream>

#include "trireme/plan/link.h"
#include "trireme/show/collective/collective.h"
#include "trireme/show/collective/cost.h"
#include "trireme/show/drawing/legible_test.h"
#include "trireme/show/drawing/panel.h"
#include "trireme/show/drawing/words.h"
#include "trireme/show/step/zero3.h"
#include "trireme/show/strategies.h"

namespace trireme {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using namespace show;

TEST(Picture, LabelsOfEveryAlgorithmStandApart) {
  for (comm::OpKind kind : drawn_kinds()) {
    for (const auto* entry : comm::algorithms_of(kind)) {
      if (!comm::ships(*entry)) continue;  // other tests of this process register wrong ones
      for (int ranks : {2, 5, 8}) {
        SCOPED_TRACE(title_of(kind) + " " + entry->name + " " + std::to_string(ranks));
        const Recording recording =
            record({.kind = kind, .algorithm = entry->name, .ranks = ranks, .hosts = 2});
        expect_legible(svg_of(recording, plan::kDefaultLink, 1 << 20));
      }
    }
  }
}

// With every cell of every round drawn, a ring of 16 took 7.5 MB.
TEST(Picture, LargeOnesAreSmallFilesWithTheFirstAndLastOfEqualRounds) {
  for (comm::OpKind kind : drawn_kinds()) {
    for (const auto* entry : comm::algorithms_of(kind)) {
      if (!comm::ships(*entry)) continue;  // other tests of this process register wrong ones
      for (int ranks : {16, 20}) {
        SCOPED_TRACE(title_of(kind) + " " + entry->name + " " + std::to_string(ranks));
        const Recording recording =
            record({.kind = kind, .algorithm = entry->name, .ranks = ranks, .hosts = 4});
        const std::string svg = svg_of(recording, plan::kDefaultLink, 1 << 20);
        EXPECT_LT(svg.size(), 500'000u);
        for (const int step : {1, recording.rounds()})
          EXPECT_NE(svg.find(step_title(recording, step)), std::string::npos);
      }
    }
  }
  const Recording ring =
      record({.kind = comm::OpKind::AllReduce, .algorithm = "ring", .ranks = 16});
  const std::string svg = svg_of(ring, plan::kDefaultLink, 1 << 20);
  for (const char* part : {"rounds 3 to 14 are left out", "round 15 of 30", "round 16 of 30"})
    EXPECT_NE(svg.find(part), std::string::npos) << part;
  expect_legible(svg);
  EXPECT_LT(html_of(ring, plan::kDefaultLink, 1 << 20).size(), 1'500'000u);
}

TEST(Picture, SaysWhatItsMarksMean) {
  const Recording ring = record({.kind = comm::OpKind::AllReduce, .algorithm = "ring", .ranks = 3});
  for (const std::string& text :
       {svg_of(ring, plan::kDefaultLink, 1 << 20), html_of(ring, plan::kDefaultLink, 1 << 20)}) {
    EXPECT_THAT(text, HasSubstr("thick frame: changed in this round"));
    EXPECT_THAT(text, HasSubstr("green: as it must be in the end"));
    EXPECT_THAT(text, HasSubstr("a message costs α = 25 us"));
  }
}

TEST(Picture, PageSaysWhatHappensInEachRound) {
  const Recording ring = record({.kind = comm::OpKind::AllReduce, .algorithm = "ring", .ranks = 3});
  const std::string page = html_of(ring, plan::kDefaultLink, 1 << 20);
  std::smatch found;
  ASSERT_TRUE(std::regex_search(page, found, std::regex("id=\"captions\">([^\n]*)</script>")));
  const auto captions = nlohmann::json::parse(found[1].str());
  ASSERT_EQ(captions.size(), 5u);
  EXPECT_EQ(captions[1],
            "Rank 0 sends chunk 0 to rank 1. Rank 1 sends chunk 1 to rank 2. Rank 2 "
            "sends chunk 2 to rank 0.");
}

TEST(Picture, ColoursOfRanksDiffer) {
  for (int ranks : {4, 10, 20}) {
    std::set<std::string> colours;
    for (int rank = 0; rank < ranks; ++rank) colours.insert(colour_of(rank, ranks));
    EXPECT_EQ(colours.size(), static_cast<std::size_t>(ranks));
  }
}

TEST(Picture, PageNeedsNothingButItself) {
  const Recording ring = record({.kind = comm::OpKind::AllReduce, .algorithm = "ring", .ranks = 3});
  std::string page = html_of(ring, plan::kDefaultLink, 1 << 20);
  page = std::regex_replace(page, std::regex("xmlns=\"http://www.w3.org/2000/svg\""), "");
  EXPECT_THAT(page, Not(HasSubstr("http")));
  EXPECT_THAT(page, Not(HasSubstr("src=")));
  EXPECT_THAT(page, HasSubstr("id=\"play\""));
}

TEST(Picture, JsonHoldsEveryRound) {
  const Recording ring = record({.kind = comm::OpKind::AllReduce, .algorithm = "ring", .ranks = 3});
  std::istringstream lines(json_of(ring, plan::kDefaultLink, 1 << 20));
  std::vector<nlohmann::json> objects;
  for (std::string line; std::getline(lines, line);) objects.push_back(nlohmann::json::parse(line));
  ASSERT_EQ(objects.size(), 7u);  // show, before, four rounds, cost
  EXPECT_EQ(objects[0]["event"], "show");
  EXPECT_EQ(objects[0]["chunks"], 3);
  EXPECT_EQ(objects[2]["held"][2][1], nlohmann::json::parse("[[1, 2]]"));
  EXPECT_EQ(objects[2]["messages"].size(), 3u);
  EXPECT_EQ(objects[6]["event"], "cost");
  EXPECT_EQ(objects[6]["sent_bytes"], nlohmann::json(ring.sent()));
}

// Descriptions of a user's own algorithms may be in any encoding.
TEST(Picture, JsonIsUtf8) {
  EXPECT_EQ(json_line({{"about", "caf\xe9"}}), "{\"about\":\"caf\uFFFD\"}\n");
}

TEST(StrategyPicture, LabelsOfFewAndManyRanksStandApart) {
  for (const plan::NamedStrategy& one : plan::named_strategies()) {
    for (const int ranks : {1, 2, 8}) {
      if (ranks > one.most_ranks && one.most_ranks > 0) continue;
      if (ranks % one.hosts != 0) continue;
      SCOPED_TRACE(one.name + " " + std::to_string(ranks));
      expect_legible(svg_of(draw_strategy(one.name, ranks)));
    }
  }
}

// The left and right edges of the servers' boxes, which are the upper ones, and their bottom.
std::vector<std::pair<double, double>> server_boxes(const std::string& svg, double& bottom) {
  std::vector<std::pair<double, double>> boxes;
  const std::regex box(
      "<rect x=\"([0-9.]+)\" y=\"([0-9.]+)\" width=\"([0-9.]+)\" height=\"([0-9.]+)\""
      "[^>]*stroke=\"#333333\"");
  double top = 1e9;
  for (std::sregex_iterator it(svg.begin(), svg.end(), box), end; it != end; ++it) {
    const double x = std::stod((*it)[1]), y = std::stod((*it)[2]);
    if (y < top) boxes.clear();
    top = std::min(top, y);
    if (y > top) continue;
    bottom = y + std::stod((*it)[4]);
    boxes.emplace_back(x, x + std::stod((*it)[3]));
  }
  return boxes;
}

// With one worker, the servers' boxes once covered the labels of their rows; with eight, arrows ended
// beside the servers.
TEST(StrategyPicture, ServersHaveLabelsAndArrows) {
  for (const int workers : {1, 2, 4, 8}) {
    SCOPED_TRACE(workers);
    const std::string svg = svg_of(draw_strategy("ParameterServer", workers));
    double bottom = 0;
    const auto boxes = server_boxes(svg, bottom);
    ASSERT_EQ(boxes.size(), 2u);
    for (const auto& label : labels_of(svg)) {
      if (label.text == "optimizer state" && std::abs(bottom - label.bottom) < 40) {
        EXPECT_LT(label.right, boxes[0].first);
      }
    }
    int tips = 0;
    const std::regex tip("<path d=\"M([0-9.]+) ([0-9.]+) ");
    for (std::sregex_iterator it(svg.begin(), svg.end(), tip), end; it != end; ++it) {
      const double x = std::stod((*it)[1]), y = std::stod((*it)[2]);
      if (std::abs(y - bottom - 2) > 0.1) continue;
      ++tips;
      EXPECT_TRUE((x > boxes[0].first && x < boxes[0].second) ||
                  (x > boxes[1].first && x < boxes[1].second))
          << x;
    }
    EXPECT_EQ(tips, 2 * workers);
  }
}

TEST(Zero3Picture, BucketsThatAreAddedUpTogetherStandApart) {
  Zero3Recording recording{.ranks = 2, .blocks = 4, .block_bytes = 1000, .model_bytes = 4000};
  recording.moments.resize(2);
  for (auto& moments : recording.moments)
    for (std::uint32_t block = 0; block < 4; ++block)
      moments.push_back({.name = "B" + std::to_string(block),
                         .block = static_cast<int>(block),
                         .sent = {block},
                         .added = {0, 1, 2, 3},
                         .weight_bytes = 1000});
  expect_legible(svg_of(recording));
  EXPECT_THAT(grid(recording, 0, 4), HasSubstr("adds up     0,1,2,3 0,1,2,3 0,1,2,3 0,1,2,3\n"));
}

}  // namespace
}  // namespace trireme
