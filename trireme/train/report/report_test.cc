#include "trireme/train/report/report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <memory>

#include "trireme/base/error.h"
#include "trireme/base/file.h"
#include "trireme/observe/events.h"
#include "trireme/train/run/run_folder.h"

namespace trireme::report_test {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using train::Report;
using train::ReportOptions;
using train::RunFolder;

class ReportTest : public ::testing::Test {
 protected:
  ReportTest() : folder_(::testing::TempDir() + "report-" + std::to_string(getpid())) {
    fs::create_directory(folder_.path());
  }
  ~ReportTest() override { fs::remove_all(folder_.path()); }

  std::string picture() const { return *try_read_file(folder_.plot()); }
  static void add_steps(Report& report, long first, long last) {
    for (long step = first; step <= last; ++step)
      report.step({.step = step, .loss = 3.0 / static_cast<double>(step), .step_seconds = 1});
  }

  const RunFolder folder_;
};

// A file that is read at each validation makes the time of a long run quadratic.
TEST_F(ReportTest, DrawsTheRunWithoutReadingItsEventsAgain) {
  {
    Report before(folder_, {.steps = 9});
    add_steps(before, 1, 3);
    before.validation(3, 1.5, 10);
    before.trigram(2);
  }
  Report report(folder_, {.steps = 9, .first = 3});
  add_steps(report, 4, 6);
  report.validation(6, 0.75, 10);
  report.plot();
  const std::string expected = picture();
  EXPECT_THAT(expected, AllOf(HasSubstr("0.75"), HasSubstr("byte trigram with back-off 2.00")));
  fs::remove(folder_.events());
  report.plot();
  EXPECT_EQ(picture(), expected);
}

TEST_F(ReportTest, DrawsALongRunInAPictureOfBoundedSize) {
  Report report(folder_, {.steps = 20'000});
  add_steps(report, 1, 2'000);
  report.plot();
  const std::size_t short_run = picture().size();
  EXPECT_THAT(picture(), HasSubstr("training, each step"));
  add_steps(report, 2'001, 20'000);
  report.plot();
  EXPECT_LT(picture().size(), 2 * short_run);
  EXPECT_THAT(picture(), AllOf(HasSubstr("training, mean of 8 steps"),
                               HasSubstr("training, mean of 166 steps")));
}

// /dev/full stands for a full disk.
TEST_F(ReportTest, FilesThatCannotBeWrittenAreOnlyAWarning) {
  Report report(folder_, {.steps = 9});
  add_steps(report, 1, 2);
  fs::create_symlink("/dev/full", folder_.plot());
  ::testing::internal::CaptureStderr();
  for (int i = 0; i < 3; ++i) report.plot();
  const std::string full = ::testing::internal::GetCapturedStderr();
  EXPECT_THAT(
      full, AllOf(HasSubstr("cannot write " + folder_.plot()), HasSubstr("The training goes on")));
  EXPECT_EQ(full.find("cannot"), full.rfind("cannot")) << "once: " << full;
  fs::remove(folder_.plot());
  ::testing::internal::CaptureStderr();
  report.plot();
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              HasSubstr(folder_.plot() + " is written again"));
  EXPECT_TRUE(fs::is_regular_file(folder_.plot()));
}

// While it lives, no file grows beyond `bytes`, as if the disk were full.
class FullDisk {
 public:
  explicit FullDisk(std::uintmax_t bytes) : handler_(std::signal(SIGXFSZ, SIG_IGN)) {
    EXPECT_EQ(::getrlimit(RLIMIT_FSIZE, &before_), 0);
    struct rlimit small = before_;
    small.rlim_cur = bytes;
    EXPECT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  }
  ~FullDisk() {
    EXPECT_EQ(::setrlimit(RLIMIT_FSIZE, &before_), 0);
    std::signal(SIGXFSZ, handler_);
  }

 private:
  void (*const handler_)(int);
  struct rlimit before_ {};
};

TEST_F(ReportTest, EventsWaitInMemoryForADiskThatIsFull) {
  Report report(folder_, {.steps = 200});
  add_steps(report, 1, 40);
  ::testing::internal::CaptureStderr();
  {
    const FullDisk full(fs::file_size(folder_.events()) + 10);
    add_steps(report, 41, 100);
  }
  EXPECT_EQ(observe::read_history(folder_.events()).training.size(), 40u);
  add_steps(report, 101, 101);
  const std::string said = ::testing::internal::GetCapturedStderr();
  const std::string failed = "cannot write " + folder_.events();
  EXPECT_THAT(said, AllOf(HasSubstr(failed), HasSubstr(folder_.events() + " is written again")));
  EXPECT_EQ(said.find(failed), said.rfind(failed)) << "once: " << said;
  EXPECT_EQ(observe::read_history(folder_.events()).training.size(), 101u);
}

// The ranks of an elastic job change, and go on after an earlier step.
TEST_F(ReportTest, EventsWaitForTheNextReportOfTheRun) {
  std::deque<std::string> unwritten;
  ::testing::internal::CaptureStderr();
  {
    auto before = std::make_unique<Report>(folder_, ReportOptions{.unwritten = &unwritten});
    add_steps(*before, 1, 10);
    const FullDisk full(fs::file_size(folder_.events()) + 10);
    add_steps(*before, 11, 20);
    before.reset();
  }
  EXPECT_EQ(unwritten.size(), 10u);
  EXPECT_EQ(observe::read_history(folder_.events(), unwritten).training.size(), 20u);
  const Report silent(folder_, {.silent = true, .unwritten = &unwritten});
  Report report(folder_, {.goes_on = true, .unwritten = &unwritten, .steps = 200, .first = 18});
  EXPECT_TRUE(unwritten.empty());
  add_steps(report, 19, 30);
  EXPECT_THAT(::testing::internal::GetCapturedStderr(), Not(HasSubstr("could not be written")));
  const auto training = observe::read_history(folder_.events()).training;
  ASSERT_EQ(training.size(), 30u);
  for (std::size_t i = 0; i < training.size(); ++i)
    EXPECT_EQ(training[i].first, static_cast<double>(i + 1));
}

TEST_F(ReportTest, EventsThatNoOtherReportTakesAreLostWithAWarning) {
  auto report = std::make_unique<Report>(folder_, ReportOptions{});
  add_steps(*report, 1, 40);
  ::testing::internal::CaptureStderr();
  {
    const FullDisk full(fs::file_size(folder_.events()) + 10);
    add_steps(*report, 41, 50);
    report.reset();
  }
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              HasSubstr("10 events could not be written to " + folder_.events()));
}

TEST_F(ReportTest, ATrainingUnderWayBeginsWithoutItsFiles) {
  const std::string path = folder_.path();
  fs::remove(path);
  std::ofstream(path) << "no folder";
  EXPECT_THROW(Report(folder_, {.steps = 9}), ResourceError);
  Report report(folder_, {.goes_on = true, .open_again = Duration::zero(), .steps = 9});
  add_steps(report, 1, 2);
  fs::remove(path);
  fs::create_directory(path);
  add_steps(report, 3, 3);
  EXPECT_EQ(observe::read_history(folder_.events()).training.size(), 3u);
  EXPECT_TRUE(fs::exists(folder_.tensorboard()));
}

}  // namespace
}  // namespace trireme::report_test
