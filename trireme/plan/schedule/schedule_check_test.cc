// The faults that the check finds, each with the marked cell, and the peaks that it reports.
#include "trireme/plan/schedule/schedule_check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "trireme/base/error.h"
#include "trireme/plan/open_sums.h"
#include "trireme/plan/schedule/generators/schedules.h"
#include "trireme/plan/schedule/schedule_transfers.h"

namespace trireme {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using namespace plan;

std::string first_fault(const std::string& text) {
  const auto faults = inspect(parse_schedule(text)).faults;
  return faults.empty() ? "no fault" : faults.front();
}

TEST(ScheduleCheck, AMissingActionIsDrawnWhereItBelongs) {
  EXPECT_EQ(first_fault("0: F0.0 F0.1 B0.0\n1: F1.0 B1.0 F1.1 B1.1\n"),
            "B0.1 is missing\n"
            "  0: F0.0 F0.1 B0.0 >B0.1?<\n"
            "  1: F1.0 B1.0 F1.1 B1.1");
  EXPECT_THAT(first_fault("0: F0.1 B0.0 B0.1\n"), HasSubstr("0: >F0.0?< F0.1 B0.0 B0.1"));
  EXPECT_THAT(first_fault("0: F0.0 I0.0\n"), HasSubstr("W0.0 is missing"));
  EXPECT_THAT(first_fault("0: F0.0 W0.0\n"), HasSubstr("I0.0 is missing"));
}

TEST(ScheduleCheck, ADoubledActionIsMarked) {
  EXPECT_EQ(first_fault("0: F0.0 F0.0 B0.0\n"),
            "F0.0 occurs twice\n"
            "  0: F0.0 >F0.0< B0.0");
  EXPECT_THAT(first_fault("0: F0.0 B0.0 W0.0\n"), HasSubstr("B0.0 already computes W0.0"));
  EXPECT_THAT(first_fault("0: F0.0 F0.1+B0.0 B0.0 B0.1\n"), HasSubstr("B0.0 occurs twice"));
}

TEST(ScheduleCheck, OrderWithinARank) {
  EXPECT_THAT(first_fault("0: B0.0 F0.0\n"), HasSubstr("B0.0 stands before F0.0"));
  EXPECT_THAT(first_fault("0: F0.0 W0.0 I0.0\n"), HasSubstr("W0.0 stands before I0.0"));
  EXPECT_THAT(first_fault("0: F0.0 B0.0 RC0.0\n"), HasSubstr("B0.0 stands before RC0.0"));
}

TEST(ScheduleCheck, WeightGradientsAscend) {
  EXPECT_THAT(first_fault("0: F0.0 F0.1 B0.1 B0.0\n"), HasSubstr("ascending order"));
  EXPECT_THAT(first_fault("0: F0.0 F0.1 I0.1 I0.0 W0.0 W0.1\n"), HasSubstr("no fault"));
}

TEST(ScheduleCheck, ADeadlockIsDrawnAsWhoWaitsForWhom) {
  // Rank 0 waits for micro-batch 0's gradient, rank 1 for micro-batch 1, which rank 0 sends later.
  EXPECT_EQ(first_fault("0: F0.0 B0.0 F0.1 B0.1\n1: F1.1 F1.0 B1.0 B1.1\n"),
            "deadlock:\n"
            "  rank 0, at B0.0, waits for the gradient that stage 1 makes of micro-batch 0, which "
            "rank 1 does later\n"
            "  rank 1, at F1.1, waits for F0.1, which rank 0 does later\n"
            "  0: F0.0 >B0.0< F0.1 B0.1\n"
            "  1: F1.1 F1.0   B1.0 B1.1");
  EXPECT_THAT(first_fault("0: F1.0 F0.0 B1.0 B0.0\n"),
              HasSubstr("rank 0, at F1.0, waits for F0.0"));
}

TEST(ScheduleCheck, WrittenTransfersMustMatch) {
  const std::string good =
      "0: F0.0 SA0.0 RG0.0 B0.0\n"
      "1: RA1.0 F1.0 B1.0 SG1.0\n";
  EXPECT_EQ(first_fault(good), "no fault");
  EXPECT_THAT(first_fault("0: F0.0 RG0.0 B0.0\n1: RA1.0 F1.0 B1.0 SG1.0\n"),
              HasSubstr("SA0.0 is missing"));
  EXPECT_THAT(first_fault("0: SA0.0 F0.0 RG0.0 B0.0\n1: RA1.0 F1.0 B1.0 SG1.0\n"),
              HasSubstr("SA0.0 stands before F0.0"));
  EXPECT_THAT(first_fault("0: F0.0 SA0.0 RG0.0 B0.0\n1: F1.0 RA1.0 B1.0 SG1.0\n"),
              HasSubstr("F1.0 stands before RA1.0"));
  EXPECT_THAT(first_fault("0: F0.0 SA0.0 RG0.0 B0.0\n1: RA1.0 F1.0 B1.0 SG1.0 SA1.0\n"),
              HasSubstr("SA1.0 needs no transfer"));
  // A receive that is too early causes a deadlock that the passes alone would not have.
  EXPECT_THAT(first_fault("0: RG0.0 F0.0 SA0.0 B0.0\n1: RA1.0 F1.0 B1.0 SG1.0\n"),
              HasSubstr("rank 0, at RG0.0, waits for"));
}

TEST(ScheduleCheck, TransfersOfAVPassByTheMiddle) {
  EXPECT_EQ(text_of(with_transfers(make_schedule("zb-v", {.stages = 4, .microbatches = 1}))),
            "0: F0.0 SA0.0 RA3.0 F3.0 I3.0 SG3.0 W3.0 RG0.0 I0.0 W0.0\n"
            "1: RA1.0 F1.0 F2.0 SA2.0 RG2.0 I2.0 W2.0 I1.0 SG1.0 W1.0\n");
}

TEST(ScheduleCheck, PeaksOfSplitAndRecomputedPasses) {
  const auto split = inspect(parse_schedule("0: F0.0 F0.1 I0.0 I0.1 W0.0 F0.2 W0.1 I0.2 W0.2\n"));
  ASSERT_THAT(split.faults, IsEmpty());
  EXPECT_EQ(split.peaks[0].activations, 2);
  EXPECT_EQ(split.peaks[0].for_weights, 2);
  EXPECT_EQ(split.peaks[0].inputs, 0);
  const Schedule gpipe = make_schedule("gpipe", {.stages = 2, .microbatches = 6});
  const auto peaks = verify(with_recompute(gpipe), "gpipe");
  EXPECT_EQ(peaks[0].activations, 1);
  EXPECT_EQ(peaks[0].inputs, 6);
  EXPECT_EQ(verify(gpipe, "gpipe")[0].activations, 6);
}

TEST(ScheduleCheck, OpenSumsAreThoseOfTheTree) {
  // ceil(log2 M), at least 1 (docs/numerics.md).
  const int expected[] = {1, 1, 2, 2, 3, 3, 3, 3, 4};
  for (int m = 1; m <= 9; ++m) {
    const Schedule schedule = make_schedule("gpipe", {.stages = 1, .microbatches = m});
    EXPECT_EQ(open_sums(schedule.microbatches(), 1), expected[m - 1]) << m;
  }
}

TEST(ScheduleCheck, VerifyThrowsWithTheGrid) {
  try {
    verify(parse_schedule("0: F0.0\n"), "mine.txt");
    FAIL();
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), HasSubstr("mine.txt cannot run"));
    EXPECT_THAT(error.what(), HasSubstr("0: F0.0 >B0.0?<"));
  }
}

// Any file of a user is either read and checked, or refused, without crashing.
TEST(ScheduleCheck, AnyTextIsReadAndCheckedOrRefused) {
  const std::string characters = "0123456789.:+ FBIWSARGCLDTU#\n";
  std::mt19937 random(9);
  int refused = 0, faulty = 0, good = 0;
  for (const ScheduleEntry& entry : schedules()) {
    const std::string whole =
        text_of(with_transfers(make_schedule(entry.name, {.stages = 4, .microbatches = 3})));
    for (int round = 0; round < 400; ++round) {
      std::string text = whole;
      for (std::size_t slips = random() % 4; slips > 0; --slips) {
        const std::size_t at = random() % text.size();
        switch (random() % 3) {
          case 0:
            text[at] = characters[random() % characters.size()];
            break;
          case 1:
            text.erase(at, 1 + random() % 6);
            break;
          default:
            text.insert(at, text.substr(random() % text.size(), 1 + random() % 12));
        }
        if (text.empty()) text = "0";
      }
      try {
        inspect(parse_schedule(text)).faults.empty() ? ++good : ++faulty;
      } catch (const ConfigError&) {
        ++refused;
      }
    }
  }
  EXPECT_GT(refused, 300);
  EXPECT_GT(faulty, 50);
  EXPECT_GT(good, 300);
}

TEST(ScheduleCheck, AnAbsurdNumberIsRefusedBeforeItIsAllocatedFor) {
  EXPECT_THAT(first_fault("0: F0.9999 F1.0 F2.0\n"), HasSubstr("need 30000 forward passes"));
}

}  // namespace
}  // namespace trireme
