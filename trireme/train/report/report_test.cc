#include "trireme/train/report/report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "trireme/base/file.h"

namespace trireme::report_test {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;
using train::Report;
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

}  // namespace
}  // namespace trireme::report_test
