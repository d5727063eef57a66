#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "trireme/observe/events.h"
#include "trireme/observe/machine.h"
#include "trireme/observe/progress.h"

namespace trireme {
namespace {

using observe::Event;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

// A folder of its own, removed at the end.
class Folder {
 public:
  Folder() {
    std::string pattern = ::testing::TempDir() + "observe-XXXXXX";
    path_ = mkdtemp(pattern.data());
  }
  ~Folder() { std::filesystem::remove_all(path_); }
  std::string file(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

// What a Progress writes, as one string.
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

observe::StepFigures figures(long step) {
  return {.step = step,
          .loss = 2.5,
          .step_seconds = 0.5,
          .items_per_second = 12345,
          .communication_seconds = 0.05,
          .input_seconds = 0.01};
}

TEST(Event, KeepsOrderAndStableNames) {
  EXPECT_EQ(observe::step_event({.step = 3,
                                 .loss = 1.5,
                                 .step_seconds = 0.25,
                                 .items_per_second = 0,
                                 .communication_seconds = 0,
                                 .input_seconds = 0,
                                 .learning_rate = 0,
                                 .gradient_norm = 0})
                .line(),
            R"({"event":"step","step":3,"loss":1.5,"step_seconds":0.25,"tokens_per_second":0.0,)"
            R"("communication_seconds":0.0,"input_seconds":0.0,"learning_rate":0.0,)"
            R"("gradient_norm":0.0})");
  EXPECT_EQ(observe::validation_event(7, 2.0, 640, 1.75).line(),
            R"({"event":"validation","step":7,"loss":2.0,"tokens":640,"trigram_loss":1.75})");
}

TEST(Event, NamesWhatItCountsAndLeavesOutWhatIsNotKnown) {
  EXPECT_EQ(observe::step_event({.step = 3, .items = "samples"}).line(),
            R"({"event":"step","step":3,"step_seconds":0.0})");
  EXPECT_EQ(observe::validation_event(7, 2.0, 64, std::nullopt, "samples").line(),
            R"({"event":"validation","step":7,"loss":2.0,"samples":64})");
}

TEST(Event, NotFiniteIsNullAndTextIsEscaped) {
  EXPECT_EQ(Event("x").set("a", std::nan("")).set("b", std::string("q\"\n\xff")).line(),
            "{\"event\":\"x\",\"a\":null,\"b\":\"q\\\"\\n\xEF\xBF\xBD\"}");
}

TEST(Event, MergePrefixes) {
  EXPECT_EQ(Event("plan").merge("predicted_", Event("m").set("bytes", 5L)).line(),
            R"({"event":"plan","predicted_bytes":5})");
}

TEST(History, RoundTripLeavesOutATornLine) {
  Folder folder;
  const std::string path = folder.file("events.jsonl");
  {
    observe::EventWriter writer;
    writer.open(path);
    writer.write(observe::validation_event(0, 5.5, 64, std::nullopt));
    for (long step = 1; step <= 4; ++step) writer.write(observe::step_event(figures(step)));
    writer.write(observe::validation_event(4, 2.25, 64, 1.75));
  }
  std::ofstream(path, std::ios::app) << R"({"event":"step","st)";
  const observe::History history = observe::read_history(path);
  EXPECT_EQ(history.training.size(), 4u);
  EXPECT_THAT(history.validation, ElementsAre(std::pair(0., 5.5), std::pair(4., 2.25)));
  EXPECT_EQ(history.trigram, 1.75);
  observe::keep_until(path, 2);
  EXPECT_EQ(observe::read_history(path).training.size(), 2u);
  EXPECT_EQ(observe::read_history(path).validation.size(), 1u);
}

TEST(History, LinesOfAPersonDoNotEndARun) {
  Folder folder;
  const std::string path = folder.file("events.jsonl");
  std::ofstream(path) << R"({"event":"step","step":"three","loss":1})"
                         "\n"
                         R"({"event":7,"step":null,"loss":1})"
                         "\n"
                         R"({"event":"validation","step":1,"loss":2,"trigram_loss":"none"})"
                         "\n";
  EXPECT_EQ(observe::read_history(path).validation.size(), 1u);
  EXPECT_FALSE(observe::read_history(path).trigram);
  observe::keep_until(path, 0);
  EXPECT_EQ(observe::read_history(path).validation.size(), 0u);
}

TEST(Progress, PlainLinesAtRoundSteps) {
  const std::string text = shown({.steps = 200}, [](observe::Progress& progress) {
    for (long step = 1; step <= 20; ++step) progress.step(figures(step));
  });
  EXPECT_THAT(text, AllOf(HasSubstr("step 1 of 200 · loss 2.500 · 12,345 tokens/s · "
                                    "communication 10 % · input 2 %\n"),
                          HasSubstr("step 10 of 200"), HasSubstr("· 1 min 30 s left\n"),
                          Not(HasSubstr("step 7 of")), Not(HasSubstr("\r"))));
}

TEST(Progress, AndEventsTellTheLossScaleOfFp16) {
  observe::StepFigures one = figures(1);
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
      observe::StepFigures one = figures(step);
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

// What stands on the terminal's live line after two steps, so that all seven fields have a value.
std::string live_line(int columns) {
  const std::string text =
      shown({.steps = 2000, .terminal = true, .columns = columns}, [](observe::Progress& progress) {
        progress.validation(1.5);
        progress.step(figures(1239));
        progress.step(figures(1240));
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

int columns_taken(const std::string& text) {
  int columns = 0;
  for (const char c : text) columns += (static_cast<unsigned char>(c) & 0xC0) != 0x80;
  return columns;
}

TEST(Progress, LiveLineHoldsWholeFieldsAtAnyWidth) {
  const std::vector<std::string> all = fields_of(live_line(160));
  ASSERT_THAT(
      all, ElementsAre("step 1,240 of 2,000", "loss 2.500", "validation 1.500", "12,345 tokens/s",
                       "communication 10 %", "input 2 %", "6 min 20 s left"));
  std::size_t before = 2;
  for (int columns = 40; columns <= 160; ++columns) {
    SCOPED_TRACE(columns);
    const std::string line = live_line(columns);
    EXPECT_LT(columns_taken(line), columns);
    const std::vector<std::string> fields = fields_of(line);
    // Whole fields, in their order, never fewer than on a narrower terminal.
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
  EXPECT_EQ(live_line(53), "step 1,240 of 2,000 · loss 2.500 · 6 min 20 s left");
}

TEST(Progress, LiveLineMovesBelowLines) {
  const std::string text =
      shown({.steps = 10, .terminal = true, .columns = 20}, [](observe::Progress& progress) {
        progress.step(figures(1));
        progress.line("hello");
      });
  EXPECT_EQ(text, "\rstep 1 of 10\x1b[K\r\x1b[Khello\nstep 1 of 10\n");
}

TEST(Progress, ValidationStandsInTheLine) {
  const std::string text = shown({.steps = 1}, [](observe::Progress& progress) {
    progress.validation(1.25);
    progress.step(figures(1));
  });
  EXPECT_THAT(text, HasSubstr("· validation 1.250 ·"));
}

TEST(Words, AreForPeople) {
  EXPECT_EQ(observe::grouped(1234567), "1,234,567");
  EXPECT_EQ(observe::grouped(-123), "-123");
  EXPECT_EQ(observe::bytes_text(999), "999 bytes");
  EXPECT_EQ(observe::bytes_text(1.44e6), "1.4 MB");
  EXPECT_EQ(observe::bytes_text(820e3), "820 kB");
  EXPECT_EQ(observe::duration_text(0.42), "0.42 s");
  EXPECT_EQ(observe::duration_text(200), "3 min 20 s");
  EXPECT_EQ(observe::duration_text(3900), "1 h 5 min");
}

TEST(Cores, TheTightestLimitDecidesAndIsNamed) {
  EXPECT_EQ(observe::decide_cores(8, 8, 0).usable, 8);
  const auto masked = observe::decide_cores(8, 2, 0);
  EXPECT_EQ(masked.usable, 2);
  EXPECT_THAT(masked.reason, HasSubstr("affinity mask allows 2"));
  const auto limited = observe::decide_cores(8, 8, 1.5);
  EXPECT_EQ(limited.usable, 2);
  EXPECT_THAT(limited.reason, HasSubstr("quota is 1.5"));
}

TEST(Machine, KnowsItself) {
  EXPECT_GE(observe::usable_cores().usable, 1);
  EXPECT_GT(observe::memory_total(), 0);
  EXPECT_GT(observe::resident_bytes(), 0);
  EXPECT_GE(observe::peak_resident_bytes(), observe::resident_bytes() / 2);
}

}  // namespace
}  // namespace trireme
