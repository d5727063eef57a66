// A schedule's grid, its figures, its picture and its page. (tests/show has the goldens of all
// schedules, and the page in a real browser.)
#include "trireme/show/schedule/drawn_schedule.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <regex>
#include <sstream>

#include "trireme/base/error.h"
#include "trireme/plan/schedule/generators/schedules.h"
#include "trireme/plan/schedule/schedule_transfers.h"
#include "trireme/show/drawing/legible_test.h"

namespace trireme {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::Pair;
using namespace show;

DrawnSchedule drawn(std::string_view name, int stages, int microbatches,
                    plan::PipelineTimes times = {}) {
  return draw(std::string(name), "", plan::make_schedule(name, {0, stages, microbatches}), times);
}

TEST(DrawnSchedule, TextToTheLetter) {
  EXPECT_EQ(text_of(drawn("1f1b", 2, 2)),
            "1f1b, 2 stages on 2 ranks, 2 micro-batches\n"
            "\n"
            "time    0    1    2    3    4    5    6    7    8\n"
            "rank 0  F0.0 F0.1 .    .    B0.0----- .    B0.1-----\n"
            "rank 1  .    F1.0 B1.0----- F1.1 B1.1----- .    .\n"
            "\n"
            "bubble    33.3 %: a rank works 6 of 9 (F 1, I 1, W 1, B = I + W)\n"
            "live      at most 2, 1 activations on ranks 0 to 1\n"
            "sums      at most 1 open of each weight's gradients\n"
            "messages  2 activations forward, 2 gradients back\n");
}

TEST(DrawnSchedule, ALongGridComesInBlocksOfAsMuchAsALineHolds) {
  const std::string text = grid(drawn("gpipe", 4, 16));
  std::istringstream lines(text);
  int blocks = 0;
  for (std::string line; std::getline(lines, line);) {
    EXPECT_LE(line.size(), 100u);
    if (line.rfind("time", 0) == 0) ++blocks;
  }
  EXPECT_GT(blocks, 1);
  // Nothing is lost at the cuts: 4 ranks, 16 micro-batches.
  const std::regex pass("[FB]\\d\\.\\d+");
  EXPECT_EQ(
      std::distance(std::sregex_iterator(text.begin(), text.end(), pass), std::sregex_iterator()),
      2 * 4 * 16);
}

TEST(DrawnSchedule, UnevenTimesKeepTheirPlaces) {
  const auto text = grid(drawn("zb-h1", 2, 2, {{{2, 2, 1}}, 0.5}));
  EXPECT_THAT(text, HasSubstr("rank 0  F0.0----- F0.1-----"));
  EXPECT_THAT(text, HasSubstr("W0.0"));
}

TEST(DrawnSchedule, FewMicroBatchesAreSaid) {
  EXPECT_THAT(footer(drawn("gpipe", 4, 2)), HasSubstr("few       2 micro-batches for 4 ranks"));
  EXPECT_THAT(footer(drawn("gpipe", 4, 4)), Not(HasSubstr("few")));
}

TEST(DrawnSchedule, RecomputationKeepsInputs) {
  const auto again =
      draw("gpipe", "", plan::with_recompute(plan::make_schedule("gpipe", {0, 2, 3})), {});
  EXPECT_THAT(footer(again), HasSubstr("inputs    at most 3, 3 kept"));
  EXPECT_THAT(footer(again), HasSubstr("live      at most 1, 1 activations"));
  EXPECT_THAT(grid(again), HasSubstr("RC1.0 B1.0"));
}

TEST(DrawnSchedule, LiveActivationsRiseAndFall) {
  EXPECT_THAT(live_activations(drawn("1f1b", 2, 2), 0),
              ElementsAre(Pair(0, 0), Pair(0, 1), Pair(1, 2), Pair(6, 1), Pair(9, 0)));
}

TEST(DrawnSchedule, MomentsSayWhoDoesWhat) {
  const auto schedule = drawn("1f1b", 2, 2);
  EXPECT_THAT(moments(schedule), ElementsAre(0, 1, 2, 4, 5, 7, 9));
  EXPECT_EQ(moment_text(schedule, 2), "time 2: rank 0 idle, rank 1 B1.0; 2, 1 activations live\n");
  EXPECT_EQ(moment_text(schedule, 9), "time 9: rank 0 idle, rank 1 idle; 0, 0 activations live\n");
}

TEST(DrawnSchedule, JsonHoldsEveryPass) {
  std::istringstream lines(json_of(drawn("dualpipe-v", 4, 4)));
  std::vector<nlohmann::json> objects;
  for (std::string line; std::getline(lines, line);) objects.push_back(nlohmann::json::parse(line));
  EXPECT_EQ(objects.front()["event"], "schedule");
  EXPECT_EQ(objects.front()["rank_of_stage"], nlohmann::json({0, 1, 1, 0}));
  EXPECT_EQ(plan::parse_schedule(objects.front()["text"].get<std::string>()),
            plan::make_schedule("dualpipe-v", {0, 4, 4}));
  EXPECT_EQ(objects[1]["pass"], "F0.0");
  EXPECT_EQ(objects.back()["event"], "cost");
  EXPECT_EQ(objects.back()["ranks"].size(), 2u);
}

TEST(DrawnSchedule, AScheduleThatCannotRunIsNotDrawn) {
  EXPECT_THROW(draw("mine", "", plan::parse_schedule("0: F0.0\n"), {}), ConfigError);
}

TEST(SchedulePicture, LabelsOfEveryScheduleStandApart) {
  for (const plan::ScheduleEntry& entry : plan::schedules()) {
    for (int stages : {2, 4, 16}) {
      for (int microbatches : {1, 8, 40}) {
        SCOPED_TRACE(std::string(entry.name) + " " + std::to_string(stages) + " " +
                     std::to_string(microbatches));
        expect_legible(svg_of(drawn(entry.name, stages, microbatches, {{{2, 1.5, 0.7}}, 0.3})));
      }
    }
  }
}

// Once, passes from micro-batch 10 on lost the stage in their label while earlier ones kept it.
TEST(SchedulePicture, PassesOfAKindHaveLabelsOfAKind) {
  for (int microbatches = 8; microbatches <= 24; ++microbatches) {
    SCOPED_TRACE(microbatches);
    const std::string svg = svg_of(drawn("1f1b", 4, microbatches));
    const bool whole = svg.find(">F0.0<") != std::string::npos;
    const std::string last = std::to_string(microbatches - 1);
    EXPECT_EQ(svg.find(">F0." + last + "<") != std::string::npos, whole);
    EXPECT_EQ(svg.find(">" + last + "<") != std::string::npos, !whole);
  }
}

TEST(SchedulePicture, PageNeedsNothingButItself) {
  std::string page = html_of(draw("</script>", "", plan::make_schedule("1f1b", {0, 2, 2}), {}));
  page = std::regex_replace(page, std::regex("xmlns=\"http://www.w3.org/2000/svg\""), "");
  EXPECT_THAT(page, Not(HasSubstr("http")));
  EXPECT_THAT(page, Not(HasSubstr("src=")));
  EXPECT_THAT(page, HasSubstr("max=\"6\""));
  EXPECT_THAT(page, Not(HasSubstr("\"name\":\"</script>")));
}

// A browser takes "<!--<script>" in a script as the beginning of another one.
TEST(SchedulePicture, PageEndsItsScriptsWhateverItsNameIs) {
  const std::string page =
      html_of(draw("<!--<script>", "", plan::make_schedule("1f1b", {0, 2, 2}), {}));
  EXPECT_THAT(page, Not(HasSubstr("<!--")));
  EXPECT_THAT(page, HasSubstr(R"("name":"\u003c!--\u003cscript>")"));
}

}  // namespace
}  // namespace trireme
