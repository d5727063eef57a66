// Recorded passes, read back and compared with the simulation.
#include "trireme/show/schedule/recorded_schedule.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trireme/base/error.h"
#include "trireme/plan/schedule/generators/schedules.h"
#include "trireme/show/drawing/legible_test.h"

namespace trireme {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using namespace show;

TEST(RecordedSchedule, WhatWasWrittenIsReadBack) {
  const plan::PipelineTimes times{{{2, 1.5, 0.5}}, 0.25};
  for (const plan::ScheduleEntry& entry : plan::schedules()) {
    SCOPED_TRACE(entry.name);
    const auto schedule = plan::make_schedule(entry.name, {0, 4, 6});
    const DrawnSchedule written = draw("it", "", schedule, times);
    const DrawnSchedule read = read_recorded(json_of(written), "run.jsonl");
    EXPECT_EQ(read.schedule, schedule);
    EXPECT_NEAR(read.timeline.bubble_rate, written.timeline.bubble_rate, 1e-12);
    EXPECT_EQ(read.timeline.cost, written.timeline.cost);
  }
}

// One rank idles between its passes; the simulation of the same passes does not.
TEST(RecordedSchedule, TheDifferenceIsWhatThePassesDoNotExplain) {
  const std::string run =
      "{\"event\": \"step\", \"step\": 7}\n"
      "{\"event\": \"pass\", \"rank\": 0, \"pass\": \"B0.0\", \"begin\": 103, \"end\": 105}\n"
      "\n"
      "{\"event\": \"pass\", \"rank\": 0, \"pass\": \"F0.0\", \"begin\": 100, \"end\": 101}\n";
  const DrawnSchedule recorded = read_recorded(run, "run.jsonl");
  EXPECT_EQ(plan::text_of(recorded.schedule), "0: F0.0 B0.0\n");
  EXPECT_DOUBLE_EQ(recorded.timeline.bubble_rate, 0.4);
  const DrawnSchedule again = simulated_again(recorded);
  EXPECT_DOUBLE_EQ(again.timeline.bubble_rate, 0);
  EXPECT_EQ(again.timeline.cost, 3);
  EXPECT_THAT(compare_text(recorded, again), HasSubstr("recorded  bubble 40.0 %, 5 s from first"));
  EXPECT_THAT(compare_text(recorded, again), HasSubstr("simulated bubble 0.0 %, 3 s:"));
}

TEST(RecordedSchedule, BothAreDrawnOnOneAxis) {
  const DrawnSchedule recorded = read_recorded(
      json_of(draw("1f1b", "", plan::make_schedule("1f1b", {0, 4, 8}), {{{1, 1, 1}}, 0.7})),
      "run.jsonl");
  const DrawnSchedule again = simulated_again(recorded);
  expect_legible(svg_of(recorded, again, compare_text(recorded, again)));
}

TEST(RecordedSchedule, WrongLinesAreRefusedWithTheirNumber) {
  const auto refusal = [](const std::string& text) -> std::string {
    try {
      read_recorded(text, "run.jsonl");
    } catch (const ConfigError& error) {
      return error.what();
    }
    return "nothing was thrown";
  };
  EXPECT_THAT(refusal(""), HasSubstr("run.jsonl holds no passes"));
  EXPECT_THAT(refusal("{}\n[1]\n"), HasSubstr("run.jsonl:2: not a line of JSON"));
  EXPECT_THAT(refusal("{\"event\": \"pass\", \"rank\": -1}\n"),
              HasSubstr("run.jsonl:1: not a pass"));
  EXPECT_THAT(refusal("{\"event\": \"pass\", \"rank\": 0, \"pass\": \"F0.0\", \"begin\": 2, "
                      "\"end\": 1}\n"),
              HasSubstr("not a pass"));
  EXPECT_THAT(refusal("{\"event\": \"pass\", \"rank\": 0, \"pass\": \"F0.0\", \"begin\": 1, "
                      "\"end\": 2}\n"),
              HasSubstr("0: F0.0 >B0.0?<"));
  for (const char* name : {"", " ", "F0.0 B0.0", "F0.0\\n1: F0.1", "#"})
    EXPECT_THAT(refusal("{\"event\": \"pass\", \"rank\": 0, \"pass\": \"" + std::string(name) +
                        "\", \"begin\": 1, \"end\": 2}\n"),
                HasSubstr("run.jsonl:1: not a pass"))
        << name;
}

TEST(RecordedSchedule, AFileMayHaveAnyName) {
  const std::string run = json_of(draw("1f1b", "", plan::make_schedule("1f1b", {0, 2, 2}), {}));
  const DrawnSchedule recorded = read_recorded(run, "caf\xe9.jsonl");
  EXPECT_THAT(json_of(recorded), HasSubstr(R"("name":"caf\\xe9.jsonl")"));
  EXPECT_THAT(html_of(recorded), HasSubstr(R"(caf\xe9.jsonl)"));
}

// An F+B may take less time than the mean of the backward passes of its stage.
TEST(RecordedSchedule, AShortPairIsDrawnWithinItsTime) {
  DrawnSchedule recorded = draw("dualpipe-v", "", plan::make_schedule("dualpipe-v", {0, 4, 8}), {});
  int pairs = 0;
  for (auto& passes : recorded.timeline.ranks)
    for (auto& one : passes)
      if (one.action.kind == plan::ActionKind::ForwardBackward) {
        one.end = one.begin + 0.5;
        ++pairs;
      }
  EXPECT_GT(pairs, 0);
  EXPECT_THAT(svg_of(recorded), Not(HasSubstr("width=\"-")));
}

}  // namespace
}  // namespace trireme
