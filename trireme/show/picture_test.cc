// The pictures of every algorithm: labels do not overlap and stay on the sheet; the page is
// self-contained. (tests/show has the goldens, and the page in a real browser.)
#include "trireme/show/picture.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <regex>
#include <sstream>

#include "trireme/plan/link.h"
#include "trireme/show/collective.h"
#include "trireme/show/cost.h"
#include "trireme/show/json.h"
#include "trireme/show/legible_test.h"
#include "trireme/show/panel.h"

namespace trireme {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using namespace show;

TEST(Picture, LabelsOfEveryAlgorithmStandApart) {
  for (comm::OpKind kind : drawn_kinds()) {
    for (const auto* entry : comm::algorithms_of(kind)) {
      for (int ranks : {2, 5, 8}) {
        SCOPED_TRACE(title_of(kind) + " " + entry->name + " " + std::to_string(ranks));
        const Recording recording =
            record({.kind = kind, .algorithm = entry->name, .ranks = ranks, .hosts = 2});
        expect_legible(svg_of(recording, plan::kDefaultLink, 1 << 20));
      }
    }
  }
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
  ASSERT_EQ(objects.size(), 7u);  // what it is, before, four rounds, cost
  EXPECT_EQ(objects[0]["event"], "show");
  EXPECT_EQ(objects[0]["chunks"], 3);
  EXPECT_EQ(objects[2]["held"][2][1], nlohmann::json::parse("[[1, 2]]"));
  EXPECT_EQ(objects[2]["messages"].size(), 3u);
  EXPECT_EQ(objects[6]["event"], "cost");
  EXPECT_EQ(objects[6]["sent_bytes"], nlohmann::json(ring.sent()));
}

}  // namespace
}  // namespace trireme
