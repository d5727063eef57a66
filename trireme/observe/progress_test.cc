#include "trireme/observe/progress.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

namespace trireme {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

// Returns what a Progress writes.
std::string shown(observe::ProgressOptions options,
                  const std::function<void(observe::Progress&)>& act) {
  char* text = nullptr;
  std::size_t size = 0;
  std::FILE* stream = open_memstream(&text, &size);
  options.stream = stream;
  {
    observe::Progress progress(options);
    act(progress);
  }
  std::fclose(stream);
  std::string out(text, size);
  std::free(text);
  return out;
}

observe::StepFigures figures_of(long step) {
  return {.step = step,
          .loss = 2.5,
          .step_seconds = 0.5,
          .items_per_second = 12345,
          .communication_seconds = 0.05,
          .input_seconds = 0.01};
}

TEST(Progress, PlainLinesAtRoundSteps) {
  const std::string text = shown({.steps = 200}, [](observe::Progress& progress) {
    for (long step = 1; step <= 20; ++step) progress.step(figures_of(step));
  });
  EXPECT_THAT(text, AllOf(HasSubstr("step 1 of 200 · loss 2.500 · 12,345 tokens/s · "
                                    "communication 10 % · input 2 %\n"),
                          HasSubstr("step 10 of 200"), HasSubstr("· 1 min 30 s left\n"),
                          Not(HasSubstr("step 7 of")), Not(HasSubstr("\r"))));
}

// Parameter servers count the steps of workers that train on their own.
TEST(Progress, HasOneLineForARoundStepThatIsRepeatedOrSkipped) {
  const std::string text = shown({.steps = 200}, [](observe::Progress& progress) {
    for (const long step : {1, 1, 2, 9, 10, 10, 10, 11, 19, 21, 21, 200, 200})
      progress.step(figures_of(step));
  });
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 4) << text;
  EXPECT_THAT(text, AllOf(StartsWith("step 1 of 200"), HasSubstr("\nstep 10 of 200"),
                          HasSubstr("\nstep 21 of 200"), HasSubstr("\nstep 200 of 200")));
}

TEST(Progress, AndEventsTellTheMemoryOfADevice) {
  observe::StepFigures one = figures_of(1);
  one.device_bytes = 31'200'000'000;
  const std::string text = shown({.steps = 200}, [&](auto& progress) { progress.step(one); });
  EXPECT_THAT(text, HasSubstr("tokens/s · device 31.2 GB · communication 10 %"));
  EXPECT_THAT(observe::step_event(one).line(), HasSubstr("\"device_bytes\":31200000000"));
}

TEST(Progress, AndEventsTellTheLossScaleOfFp16) {
  observe::StepFigures one = figures_of(1);
  EXPECT_THAT(observe::step_event(one).line(), Not(HasSubstr("loss_scale")));
  one.loss_scale = 65536;
  one.overflows = 3;
  EXPECT_THAT(observe::step_event(one).line(),
              AllOf(HasSubstr("\"loss_scale\":65536.0"), HasSubstr("\"overflows\":3")));
  EXPECT_THAT(shown({.steps = 200}, [&](observe::Progress& progress) { progress.step(one); }),
              HasSubstr(" · loss scale 65,536\n"));
}

TEST(Progress, LeavesOutWhatIsNotKnown) {
  const std::string text = shown({}, [](observe::Progress& progress) {
    for (long step = 1; step <= 150; ++step) {
      observe::StepFigures one = figures_of(step);
      one.input_seconds.reset();
      one.items = "samples";
      progress.step(one);
    }
  });
  EXPECT_THAT(text,
              AllOf(HasSubstr("step 1 · loss 2.500 · 12,345 samples/s · communication 10 %\n"),
                    HasSubstr("step 9 ·"), HasSubstr("step 20 ·"), HasSubstr("step 100 ·"),
                    Not(HasSubstr("left")), Not(HasSubstr("input"))));
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 9 + 9 + 1);
}

// The terminal's live line after two steps, with values in all seven fields.
std::string live_line(int columns) {
  const std::string text =
      shown({.steps = 2000, .terminal = true, .columns = columns}, [](observe::Progress& progress) {
        for (const long step : {1239, 1240}) {
          observe::StepFigures one = figures_of(step);
          one.model_flops_utilization = 0.25;
          progress.step(one);
        }
      });
  const auto begin = text.rfind('\r') + 1;
  return text.substr(begin, text.rfind("\x1b[K") - begin);
}

std::vector<std::string> fields_of(const std::string& line) {
  std::vector<std::string> fields;
  const std::string separator = " · ";
  std::size_t begin = 0;
  for (std::size_t end; (end = line.find(separator, begin)) != std::string::npos;) {
    fields.push_back(line.substr(begin, end - begin));
    begin = end + separator.size();
  }
  fields.push_back(line.substr(begin));
  return fields;
}

// The line without the bar.
std::string without_bar(const std::string& line) { return line.substr(line.find("step")); }

int columns_taken(const std::string& text) {
  int columns = 0;
  for (const char c : text) columns += (static_cast<unsigned char>(c) & 0xC0) != 0x80;
  return columns;
}

TEST(Progress, LiveLineHoldsWholeFieldsAtAnyWidth) {
  const std::vector<std::string> all = fields_of(without_bar(live_line(160)));
  ASSERT_THAT(all, ElementsAre("step 1,240 of 2,000", "loss 2.500", "12,345 tokens/s", "MFU 25 %",
                               "communication 10 %", "input 2 %", "6 min 20 s left"));
  std::size_t before = 2;
  for (int columns = 40; columns <= 160; ++columns) {
    SCOPED_TRACE(columns);
    const std::string line = live_line(columns);
    EXPECT_LT(columns_taken(line), columns);
    const std::vector<std::string> fields = fields_of(without_bar(line));
    // Only whole fields, in order, and never fewer than on a narrower terminal.
    auto next = all.begin();
    for (const std::string& field : fields) {
      next = std::find(next, all.end(), field);
      ASSERT_NE(next, all.end()) << field;
      ++next;
    }
    EXPECT_GE(fields.size(), before);
    before = fields.size();
  }
  EXPECT_THAT(live_line(110), AllOf(HasSubstr("communication 10 %"), HasSubstr("6 min 20 s left"),
                                    Not(HasSubstr("input"))));
  EXPECT_THAT(live_line(80), AllOf(StartsWith("━━"), HasSubstr("─ step 1,240"),
                                   HasSubstr("12,345 tokens/s"), Not(HasSubstr("MFU"))));
  EXPECT_EQ(live_line(53), "step 1,240 of 2,000 · loss 2.500 · 6 min 20 s left");
}

TEST(Progress, LiveLineMovesBelowLines) {
  const std::string text =
      shown({.steps = 10, .terminal = true, .columns = 20}, [](observe::Progress& progress) {
        progress.step(figures_of(1));
        progress.line("hello");
      });
  const std::string live = "\rstep 1 of 10\x1b[K";
  EXPECT_EQ(text, live + "\r\x1b[Khello\n" + live + live + "\n");
}

TEST(Progress, BarGrowsWithTheSteps) {
  const auto filled = [](long step) {
    const std::string text =
        shown({.steps = 100, .terminal = true, .columns = 200},
              [&](observe::Progress& progress) { progress.step(figures_of(step)); });
    std::size_t count = 0;
    for (std::size_t at = 0; (at = text.find("━", at)) != std::string::npos; at += 3) ++count;
    return count / 2;  // the line is drawn once more at its end
  };
  EXPECT_EQ(filled(1), 0u);
  EXPECT_EQ(filled(50), 12u);
  EXPECT_EQ(filled(100), 24u);
}

TEST(Progress, ColorIsForTerminalsThatWantIt) {
  const auto drawn = [](bool terminal, bool color) {
    return shown({.steps = 4, .terminal = terminal, .color = color, .columns = 200},
                 [](observe::Progress& progress) { progress.step(figures_of(2)); });
  };
  EXPECT_THAT(drawn(true, true),
              AllOf(HasSubstr("\x1b[32m━"), HasSubstr("\x1b[1mloss 2.500\x1b[0m")));
  EXPECT_THAT(drawn(true, false), AllOf(HasSubstr("━"), Not(HasSubstr("m━")), HasSubstr("loss")));
  EXPECT_THAT(drawn(false, true), AllOf(Not(HasSubstr("\x1b")), Not(HasSubstr("━"))));
}

TEST(Progress, SpeedIsThatOfManySteps) {
  const std::string text = shown({.steps = 41}, [](observe::Progress& progress) {
    for (long step = 1; step <= 41; ++step) {
      observe::StepFigures one = figures_of(step);
      one.step_seconds = step % 2 == 0 ? 0.01 : 0.03;  // 100 tokens each: 3,333 or 10,000 a second
      one.items_per_second = 100 / one.step_seconds;
      one.communication_seconds = step % 2 == 0 ? 0.01 : 0;
      one.input_seconds.reset();
      progress.step(one);
    }
  });
  EXPECT_THAT(text.substr(text.rfind("step")),
              ContainsRegex("of 41 · loss 2.500 · (4,9|5,0).. tokens/s · communication 25 %"));
}

TEST(Progress, SomethingIsLeftUntilTheLastStep) {
  const std::string text = shown({.steps = 20}, [](observe::Progress& progress) {
    for (long step = 1; step <= 20; ++step) {
      observe::StepFigures one = figures_of(step);
      one.step_seconds = 0.001;
      progress.step(one);
    }
  });
  EXPECT_THAT(text, AllOf(HasSubstr("step 19 of 20"), HasSubstr("· 1 s left\n"),
                          Not(HasSubstr("0 s left")), Not(HasSubstr("ms left"))));
}

// Nobody can read a thousand lines a second, and a slow connection would have to carry them.
TEST(Progress, FastStepsAreNotAllDrawn) {
  const std::string text =
      shown({.steps = 1000, .terminal = true, .columns = 200}, [](observe::Progress& progress) {
        for (long step = 1; step <= 1000; ++step) {
          observe::StepFigures one = figures_of(step);
          one.step_seconds = 0.001;
          progress.step(one);
        }
      });
  EXPECT_LE(std::count(text.begin(), text.end(), '\r'), 15);
  EXPECT_THAT(text.substr(text.rfind('\r')), HasSubstr("step 1,000 of 1,000"));
}

}  // namespace
}  // namespace trireme
