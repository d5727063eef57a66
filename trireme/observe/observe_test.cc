#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <cmath>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "trireme/base/error.h"
#include "trireme/observe/events.h"
#include "trireme/observe/log.h"
#include "trireme/observe/machine.h"
#include "trireme/observe/tensorboard.h"

namespace trireme {
namespace {

using observe::Event;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

// A temporary folder, removed at the end.
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

TEST(History, HasTheTrigramBeforeAValidationHasIt) {
  Folder folder;
  const std::string path = folder.file("events.jsonl");
  observe::EventWriter writer;
  writer.open(path);
  writer.write(Event("trigram").set("trigram_loss", 1.5));
  EXPECT_EQ(observe::read_history(path).trigram, 1.5);
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

TEST(Event, ListsAreArrays) {
  EXPECT_EQ(Event("x")
                .set("shape", std::vector<std::int64_t>{2, 3})
                .set("names", std::vector<std::string>{"a"})
                .line(),
            R"({"event":"x","shape":[2,3],"names":["a"]})");
}

TEST(Event, TellsUtilizationWhereItIsKnown) {
  observe::StepFigures one = figures(1);
  EXPECT_THAT(observe::step_event(one).line(), Not(HasSubstr("utilization")));
  one.model_flops_utilization = 0.5;
  EXPECT_THAT(observe::step_event(one).line(), HasSubstr("\"model_flops_utilization\":0.5"));
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
  EXPECT_GT(observe::memory_bytes(), 0);
  EXPECT_GE(observe::peak_memory_bytes(), observe::memory_bytes() / 2);
  std::stringstream facts;
  facts << std::ifstream("/proc/cpuinfo").rdbuf();
  EXPECT_THAT(facts.str(), HasSubstr("model name\t: " + observe::processor_name() + "\n"));
}

// A torn line is lost, but not the one after it.
TEST(Event, BeginsALineOfItsOwnAfterATornOne) {
  Folder folder;
  const std::string path = folder.file("events.jsonl");
  std::ofstream(path) << "{\"event\":\"step\",\"st";
  for (int i = 0; i < 2; ++i) {
    observe::EventWriter writer;
    writer.open(path);
    writer.write(observe::Event("changed"));
  }
  std::stringstream text;
  text << std::ifstream(path).rdbuf();
  const std::string line = observe::Event("changed").line();
  EXPECT_EQ(text.str(), "{\"event\":\"step\",\"st\n" + line + "\n" + line + "\n");
}

std::string text_of(const std::string& path) {
  std::stringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

// While it lives, files have at most `bytes`: the limit RLIMIT_FSIZE stands for a full disk.
class SmallDisk {
 public:
  explicit SmallDisk(std::size_t bytes) : handler_(std::signal(SIGXFSZ, SIG_IGN)) {
    EXPECT_EQ(::getrlimit(RLIMIT_FSIZE, &before_), 0);
    struct rlimit small = before_;
    small.rlim_cur = bytes;
    EXPECT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  }
  ~SmallDisk() {
    EXPECT_EQ(::setrlimit(RLIMIT_FSIZE, &before_), 0);
    std::signal(SIGXFSZ, handler_);
  }

 private:
  struct rlimit before_ {};
  void (*handler_)(int);
};

TEST(Event, LeavesNoPartOfItselfOnAFullDisk) {
  Folder folder;
  const std::string path = folder.file("events.jsonl");
  const std::string line = observe::Event("changed").line() + "\n";
  observe::EventWriter writer;
  writer.open(path);
  writer.write(observe::Event("changed"));
  {
    const SmallDisk full(line.size() + line.size() / 2);
    EXPECT_THROW(writer.write(observe::Event("changed")), ResourceError);
  }
  writer.write(observe::Event("changed"));
  EXPECT_EQ(text_of(path), line + line);
}

TEST(Event, IsWrittenInOrderOnceTheDiskHasSpaceAgain) {
  Folder folder;
  const std::string path = folder.file("events.jsonl");
  const std::string first = Event("first").line() + "\n", second = Event("second").line() + "\n";
  observe::EventWriter writer;
  writer.open(path);
  {
    const SmallDisk full(first.size() / 2);
    writer.keep(Event("first"));
    EXPECT_THROW(writer.write_kept(), ResourceError);
    writer.keep(Event("second"));
    EXPECT_THROW(writer.write_kept(), ResourceError);
    EXPECT_EQ(text_of(path), "");
  }
  writer.write_kept();
  EXPECT_EQ(writer.unwritten(), 0u);
  EXPECT_EQ(text_of(path), first + second);
}

TEST(TensorBoard, AFileWithoutItsHeadIsRemoved) {
  Folder folder;
  observe::TensorBoardWriter writer;
  {
    const SmallDisk full(10);
    EXPECT_THROW(writer.open(folder.file("board")), ResourceError);
  }
  EXPECT_FALSE(writer.is_open());
  EXPECT_TRUE(std::filesystem::is_empty(folder.file("board")));
}

// In a process of its own, because the level is read once.
TEST(Log, AWordThatIsNoLevelHidesNoErrors) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  for (const char* word : {"", "verbose", "DEBUG"}) {
    const auto say = [&] {
      setenv("TRIREME_LOG", word, 1);
      observe::log(observe::Level::Error, "the disk is full");
      observe::log(observe::Level::Debug, "a detail");
      std::exit(0);
    };
    EXPECT_EXIT(say(), ::testing::ExitedWithCode(0), "error: the disk is full\n$") << word;
  }
}

}  // namespace
}  // namespace trireme
