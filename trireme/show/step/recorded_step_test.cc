// A recorded step as text, picture, page and JSON.
#include "trireme/show/step/recorded_step.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <sstream>

#include "trireme/show/drawing/legible_test.h"

namespace trireme {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using namespace show;
using Kind = StepSpan::Kind;

RecordedStep two_ranks() {
  RecordedStep step{.name = "Two ranks", .about = "by hand", .ranks = 2};
  step.tables.push_back({"who has what",
                         {"rank 0", "rank 1"},
                         {{"weights", {{"half", 0}, {"", -1}}}, {"state", {{"", 0}, {"all", 1}}}}});
  for (const double late : {0.0, 0.002}) {
    StepTimeline timeline{.about = late > 0 ? "late" : "early"};
    for (int rank = 0; rank < 2; ++rank)
      timeline.ranks.push_back(
          {{"computes", {{Kind::Forward, "F0", 0, 0.001}, {Kind::Backward, "B0", 0.001, 0.003}}},
           {"world",
            {{Kind::Transfer, "all-reduce bucket 0", 0.003 + late, 0.0045 + late, 1000}}}});
    step.timelines.push_back(timeline);
  }
  step.notes = {"that is all"};
  return step;
}

TEST(RecordedStep, TextToTheLetter) {
  EXPECT_EQ(text_of(two_ranks()),
            "Two ranks\n"
            "by hand\n"
            "\n"
            "who has what\n"
            "         rank 0  rank 1\n"
            "weights  half    .\n"
            "state    .       all\n"
            "\n"
            "early (ms)\n"
            "rank 0  computes  F0 0.00-1.00, B0 1.00-3.00\n"
            "        world     all-reduce bucket 0 3.00-4.50 (1.0 kB)\n"
            "rank 1  computes  F0 0.00-1.00, B0 1.00-3.00\n"
            "        world     all-reduce bucket 0 3.00-4.50 (1.0 kB)\n"
            "\n"
            "late (ms)\n"
            "rank 0  computes  F0 0.00-1.00, B0 1.00-3.00\n"
            "        world     all-reduce bucket 0 5.00-6.50 (1.0 kB)\n"
            "rank 1  computes  F0 0.00-1.00, B0 1.00-3.00\n"
            "        world     all-reduce bucket 0 5.00-6.50 (1.0 kB)\n"
            "\n"
            "that is all\n");
}

TEST(RecordedStep, MomentsAreWhenSomethingBegins) {
  const RecordedStep step = two_ranks();
  EXPECT_THAT(moments(step), ElementsAre(0, 0.001, 0.003, 0.0045, 0.005, 0.0065));
  EXPECT_EQ(moment_text(step.timelines[0], 0.001), "1.00 ms: rank 0 B0; rank 1 B0");
  EXPECT_EQ(moment_text(step.timelines[0], 0.0045), "4.50 ms: rank 0 nothing; rank 1 nothing");
}

TEST(RecordedStep, PicturesAreLegible) {
  expect_legible(svg_of(two_ranks()));
  const std::string page = html_of(two_ranks());
  for (const char* part : {"data-since=\"1\"", "data-at=\"4\"", "max=\"5\"", "F forward pass",
                           "late, 5.00 ms: rank 0 all-reduce bucket 0"})
    EXPECT_THAT(page, HasSubstr(part));
}

TEST(RecordedStep, JsonHoldsEverySpan) {
  std::istringstream lines(json_of(two_ranks()));
  std::vector<nlohmann::json> objects;
  for (std::string line; std::getline(lines, line);) objects.push_back(nlohmann::json::parse(line));
  ASSERT_EQ(objects.size(), 2u + 2 * 2 * 3);
  EXPECT_EQ(objects[1]["rows"]["state"], nlohmann::json({"", "all"}));
  EXPECT_EQ(objects[4]["name"], "all-reduce bucket 0");
  EXPECT_EQ(objects[4]["bytes"], 1000);
}

}  // namespace
}  // namespace trireme
