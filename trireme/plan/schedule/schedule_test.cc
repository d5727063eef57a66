// The text form: valid text is read back, invalid text is drawn with its cell marked.
#include "trireme/plan/schedule/schedule.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trireme/base/error.h"

namespace trireme {
namespace {

using ::testing::HasSubstr;
using namespace plan;

std::string schedule_refusal(const std::string& text) {
  try {
    parse_schedule(text, "mine.txt");
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "nothing was thrown";
}

TEST(Schedule, EveryKindRoundTrips) {
  const std::string text =
      "0: F0.0 SA0.0 RG0.0 RC0.0 I0.0 W0.0\n"
      "1: RA1.0 F1.0+B1.1 B1.0 SG1.0\n";
  const Schedule schedule = parse_schedule(text);
  EXPECT_EQ(text_of(schedule), text);
  EXPECT_EQ(parse_schedule(text_of(schedule)), schedule);
  EXPECT_EQ(schedule.rank_of_stage, (std::vector<int>{0, 1}));
  EXPECT_EQ(schedule.microbatches(), 2);
  EXPECT_EQ(schedule.order[1][1], (Action{ActionKind::ForwardBackward, 1, 0, 1, 1}));
}

TEST(Schedule, CommentsBlankLinesAndAnyOrderOfRanks) {
  const Schedule schedule =
      parse_schedule("# two ranks\n\n1:  F1.0\tB1.0   # the last stage\r\n0: F0.0 B0.0");
  EXPECT_EQ(text_of(schedule), "0: F0.0 B0.0\n1: F1.0 B1.0\n");
}

TEST(Schedule, AWrongActionIsMarkedInTheGrid) {
  const std::string text = schedule_refusal("0: F0.0 F0.1 B0.0 B0.1\n1: F1.0 X1.0 F1.1 B1.1\n");
  EXPECT_THAT(text, HasSubstr("mine.txt:2: \"X1.0\" is no action"));
  EXPECT_THAT(text, HasSubstr("\n  0: F0.0 F0.1   B0.0 B0.1"
                              "\n  1: F1.0 >X1.0< F1.1 B1.1"));
}

TEST(Schedule, WrongFilesAreRefused) {
  for (const char* cell :
       {"F", "F0", "F0.", "F.0", "f0.0", "F0.0x", "F-1.0", "F0.10000", "F0.0+", "F0.0+F0.1",
        "B0.0+B0.1", "F0.0+B0.1+B0.2", "SA", "99999999999999999999"}) {
    EXPECT_THAT(schedule_refusal(std::string("0: ") + cell), HasSubstr("is no action")) << cell;
  }
  EXPECT_THAT(schedule_refusal(""), HasSubstr("mine.txt holds no schedule"));
  EXPECT_THAT(schedule_refusal("# nothing\n"), HasSubstr("holds no schedule"));
  EXPECT_THAT(schedule_refusal("0:\n"), HasSubstr("mine.txt:1: rank 0 has no action"));
  EXPECT_THAT(schedule_refusal("0: F0.0 B0.0\n1: # idle\n"),
              HasSubstr("mine.txt:2: rank 1 has no action"));
  EXPECT_THAT(schedule_refusal("F0.0 B0.0\n"), HasSubstr("mine.txt:1: a line without a rank"));
  EXPECT_THAT(schedule_refusal("0: F0.0\n2: F1.0\n"),
              HasSubstr("mine.txt:2: \"2\" is no rank of 2"));
  EXPECT_THAT(schedule_refusal("0: F0.0\n0: F1.0\n"), HasSubstr("\"0\" is there twice"));
  EXPECT_THAT(schedule_refusal("0 0: F0.0\n"), HasSubstr("no rank of 1"));
  EXPECT_THAT(schedule_refusal("0: F0.0\n1: F2.0\n"), HasSubstr("no pass of stage 1"));
  EXPECT_THAT(schedule_refusal("0: F0.0 F1.0\n1: B1.0\n"),
              HasSubstr("stage 1 is on rank 0 and on rank 1"));
}

TEST(Schedule, TheGridOfALongOrderShowsTheMarkedPart) {
  std::string line = "0:";
  for (int m = 0; m < 40; ++m) line += " F0." + std::to_string(m);
  EXPECT_EQ(
      grid_text(parse_schedule(line), {0, 20}),
      "\n  0: ... F0.14 F0.15 F0.16 F0.17 F0.18 F0.19 >F0.20< F0.21 F0.22 F0.23 F0.24 F0.25 ...");
  EXPECT_EQ(grid_text(parse_schedule("0: F0.0 F0.1"), {0, 2, "B0.0"}), "\n  0: F0.0 F0.1 >B0.0?<");
}

}  // namespace
}  // namespace trireme
