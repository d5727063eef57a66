// Schedules as a training loads them: by name, or from a file.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>

#include "trireme/base/error.h"
#include "trireme/plan/schedule/generators/schedules.h"
#include "trireme/plan/schedule/schedule_check.h"
#include "trireme/plan/schedule/schedule_transfers.h"

namespace trireme {
namespace {

using ::testing::HasSubstr;
using namespace plan;

class ScheduleFile : public ::testing::Test {
 protected:
  ScheduleFile() {
    path_ = ::testing::TempDir() + "schedule-XXXXXX.txt";
    const int file = mkstemps(path_.data(), 4);
    EXPECT_GE(file, 0);
    if (file >= 0) ::close(file);
  }
  ~ScheduleFile() override { std::remove(path_.c_str()); }

  const std::string& write(const std::string& text) {
    std::ofstream(path_, std::ios::trunc) << text;
    return path_;
  }
  std::string refusal(const std::string& text, int ranks, int microbatches = 0, int chunks = 0) {
    try {
      load_schedule(write(text), ranks, chunks, microbatches);
    } catch (const ConfigError& error) {
      return error.what();
    }
    return "nothing was thrown";
  }

  std::string path_;
};

TEST_F(ScheduleFile, OfARankWithoutWorkIsRefused) {
  const std::string text = "0: F0.0 F1.0 B1.0 B0.0\n1:\n";
  EXPECT_THAT(refusal(text, 2), HasSubstr(path_ + ":2: rank 1 has no action"));
}

TEST_F(ScheduleFile, WithWhatATrainingDoesNotRunIsRefused) {
  const std::string text = "0: F0.0 RC0.0 B0.0\n";
  EXPECT_THAT(refusal(text, 1), HasSubstr("a training does not run RC0.0"));
  EXPECT_EQ(why_not_trained(parse_schedule(text)), "a training does not run RC0.0");
  EXPECT_EQ(why_not_trained(parse_schedule("0: F0.0 I0.0 W0.0")), "");
}

TEST_F(ScheduleFile, OfTooManyMicroBatchesForTheLinksIsRefused) {
  const Schedule good = make_schedule("gpipe", {.ranks = 2, .stages = 2, .microbatches = 2048});
  EXPECT_EQ(load_schedule(write(text_of(good)), 2, 0, 2048), good);
  const Schedule large = make_schedule("gpipe", {.ranks = 2, .stages = 2, .microbatches = 2049});
  EXPECT_THAT(refusal(text_of(large), 2),
              HasSubstr("at most 2048 micro-batches of a file, not 2049"));
}

TEST_F(ScheduleFile, OfAnotherNumberOfStagesIsRefused) {
  const std::string text = "0: F0.0 F1.0 B1.0 B0.0\n";
  EXPECT_THAT(refusal(text, 1, 1, 1),
              HasSubstr("is for 2 stages, and parallel.chunks = 1 on 1 rank means 1 stage"));
  EXPECT_EQ(refusal(text, 1, 1, 2), "nothing was thrown");
}

TEST_F(ScheduleFile, ServesAShortBatchWithoutTheMicroBatchesItLacks) {
  const Schedule schedule = parse_schedule("0: F0.0 F0.1 F1.0 F1.1+B1.0 B1.1 B0.0 B0.1\n");
  write(text_of(schedule));
  EXPECT_EQ(text_of(load_schedule_of_step(path_, 1, 0, 1)), "0: F0.0 F1.0 B1.0 B0.0\n");
  EXPECT_EQ(load_schedule_of_step(path_, 1, 0, 2), schedule);
  try {
    load_schedule_of_step(path_, 1, 0, 3);
    FAIL() << "three micro-batches by a schedule of two";
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), HasSubstr("has 2 micro-batches, and a step of the pipeline has 3"));
  }
}

// A schedule with micro-batches left out is still valid: no pass waits for another micro-batch.
TEST_F(ScheduleFile, OfEveryKindServesEveryShortBatch) {
  for (const ScheduleEntry& entry : schedules()) {
    const int chunks = entry.chunks == Chunks::One ? 1 : 2;
    const Schedule whole =
        make_schedule(entry.name, {.ranks = 3, .stages = 3 * chunks, .microbatches = 9});
    for (const Schedule& written : {whole, with_transfers(whole)}) {
      write(text_of(written));
      for (int count = 1; count <= 9; ++count) {
        const Schedule less = load_schedule_of_step(path_, 3, 0, count);
        EXPECT_EQ(less.microbatches(), count);
        EXPECT_EQ(inspect(less).faults, std::vector<std::string>{}) << entry.name << " " << count;
      }
    }
  }
}

TEST(Schedules, NumberMoreMicroBatchesThanSixteenBitsHold) {
  for (const char* name : {"1f1b", "gpipe"}) {
    const Schedule schedule =
        make_schedule(name, {.ranks = 2, .stages = 2, .microbatches = 70'000});
    EXPECT_EQ(schedule.microbatches(), 70'000);
    EXPECT_EQ(inspect(with_transfers(schedule)).faults, std::vector<std::string>{}) << name;
  }
}

}  // namespace
}  // namespace trireme
