// Every schedule, for every shape up to 8 ranks, 4 chunks and 16 micro-batches, can run, and uses
// the memory that its file states. Small ones are compared literally.
#include "trireme/plan/schedule/generators/schedules.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>

#include "trireme/base/error.h"
#include "trireme/plan/schedule/schedule_check.h"
#include "trireme/plan/schedule/schedule_transfers.h"

namespace trireme {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using namespace plan;

void for_every_shape(const ScheduleEntry& entry,
                     const std::function<void(const ScheduleShape&)>& test) {
  for (int ranks = 1; ranks <= 8; ++ranks) {
    for (int chunks = 1; chunks <= 4; ++chunks) {
      if (entry.chunks == Chunks::One && chunks != 1) continue;
      if (entry.chunks == Chunks::Two && chunks != 2) continue;
      for (int m = 1; m <= 16; ++m) {
        SCOPED_TRACE(std::string(entry.name) + " on " + std::to_string(ranks) + " ranks, " +
                     std::to_string(chunks) + " chunks, " + std::to_string(m) + " micro-batches");
        test({ranks, ranks * chunks, m});
      }
    }
  }
}

TEST(Schedules, EveryShapeCanRun) {
  for (const ScheduleEntry& entry : schedules()) {
    for_every_shape(entry, [&](const ScheduleShape& shape) {
      const Schedule schedule = make_schedule(entry.name, shape);
      ASSERT_EQ(schedule.ranks(), shape.ranks);
      ASSERT_EQ(schedule.stages(), shape.stages);
      ASSERT_EQ(schedule.microbatches(), shape.microbatches);
      for (const Schedule& form :
           {schedule, with_transfers(schedule), with_transfers(with_recompute(schedule))}) {
        ASSERT_THAT(inspect(form).faults, IsEmpty());
        ASSERT_EQ(parse_schedule(text_of(form)), form);
      }
    });
  }
}

TEST(Schedules, LiveActivationsAreThoseOfTheDescription) {
  for (const ScheduleEntry& entry : schedules()) {
    for_every_shape(entry, [&](const ScheduleShape& shape) {
      const auto peaks = verify(make_schedule(entry.name, shape), "it");
      for (int rank = 0; rank < shape.ranks; ++rank) {
        const RankPeak& peak = peaks[static_cast<std::size_t>(rank)];
        const int most = most_activations(entry, shape, rank);
        // In a V the ranks differ by a pass or two; a padded batch may need less.
        if (entry.chunks == Chunks::Two || shape.microbatches % shape.ranks != 0) {
          ASSERT_LE(peak.activations, most);
        } else {
          ASSERT_EQ(peak.activations, most);
        }
      }
      if (entry.chunks == Chunks::Two && shape.microbatches >= 2 * shape.ranks) {
        ASSERT_GE(peaks[0].activations, 2 * shape.ranks);
      }
    });
  }
}

TEST(Schedules, DualPipePairsForwardWithBackward) {
  const Schedule schedule = make_schedule("dualpipe-v", {.stages = 8, .microbatches = 12});
  int pairs = 0;
  for (const auto& actions : schedule.order) {
    pairs += static_cast<int>(std::count_if(actions.begin(), actions.end(), [](const Action& one) {
      return one.kind == ActionKind::ForwardBackward;
    }));
  }
  // Rank r: 2 (M - 2p + r + 1) + p - 1 - r, and one less on the last rank.
  EXPECT_EQ(pairs, (10 + 3) + (12 + 2) + (14 + 1) + (16 - 1));
}

// Groups of p are padded: a smaller last group would deadlock.
TEST(Schedules, InterleavedTakesAnyNumberOfMicroBatches) {
  EXPECT_THAT(inspect(make_schedule("interleaved-1f1b", {4, 12, 5})).faults, IsEmpty());
}

TEST(Schedules, SmallOnesToTheLetter) {
  const auto text = [](std::string_view name, int stages, int microbatches) {
    return text_of(make_schedule(name, {.stages = stages, .microbatches = microbatches}));
  };
  EXPECT_EQ(text("naive", 2, 2),
            "0: F0.0 B0.0 F0.1 B0.1\n"
            "1: F1.0 B1.0 F1.1 B1.1\n");
  EXPECT_EQ(text("gpipe", 2, 3),
            "0: F0.0 F0.1 F0.2 B0.0 B0.1 B0.2\n"
            "1: F1.0 F1.1 F1.2 B1.0 B1.1 B1.2\n");
  EXPECT_EQ(text("1f1b", 3, 4),
            "0: F0.0 F0.1 F0.2 B0.0 F0.3 B0.1 B0.2 B0.3\n"
            "1: F1.0 F1.1 B1.0 F1.2 B1.1 F1.3 B1.2 B1.3\n"
            "2: F2.0 B2.0 F2.1 B2.1 F2.2 B2.2 F2.3 B2.3\n");
  EXPECT_EQ(text("interleaved-1f1b", 4, 2),
            "0: F0.0 F0.1 F2.0 F2.1 B2.0 B2.1 B0.0 B0.1\n"
            "1: F1.0 F1.1 F3.0 B3.0 F3.1 B3.1 B1.0 B1.1\n");
  EXPECT_EQ(text("breadth-first", 4, 2),
            "0: F0.0 F0.1 F2.0 F2.1 B2.0 B2.1 B0.0 B0.1\n"
            "1: F1.0 F1.1 F3.0 F3.1 B3.0 B3.1 B1.0 B1.1\n");
  EXPECT_EQ(text("zb-h1", 2, 3),
            "0: F0.0 F0.1 I0.0 W0.0 F0.2 I0.1 W0.1 I0.2 W0.2\n"
            "1: F1.0 I1.0 F1.1 I1.1 W1.0 F1.2 I1.2 W1.1 W1.2\n");
  EXPECT_EQ(text("zb-h2", 2, 4),
            "0: F0.0 F0.1 F0.2 I0.0 W0.0 F0.3 I0.1 W0.1 I0.2 W0.2 I0.3 W0.3\n"
            "1: F1.0 I1.0 F1.1 I1.1 F1.2 I1.2 W1.0 F1.3 I1.3 W1.1 W1.2 W1.3\n");
  EXPECT_EQ(text("zb-v", 4, 3),
            "0: F0.0 F0.1 F0.2 F3.0 I3.0 W3.0 F3.1 I3.1 W3.1 I0.0 W0.0 F3.2 I3.2 W3.2 I0.1 W0.1 "
            "I0.2 W0.2\n"
            "1: F1.0 F2.0 F1.1 F2.1 I2.0 W2.0 F1.2 I1.0 W1.0 F2.2 I2.1 W2.1 I1.1 I2.2 I1.2 W1.1 "
            "W2.2 W1.2\n");
  EXPECT_EQ(
      text("dualpipe-v", 4, 4),
      "0: F0.0 F0.1 F0.2 F3.0 I3.0 W3.0 F3.1 F0.3+B3.1 F3.2+B0.0 B3.2 F3.3+B0.1 B3.3 I0.2 W0.2 "
      "I0.3 W0.3\n"
      "1: F1.0 F2.0 F1.1 F2.1 F1.2 B2.0 F2.2+B1.0 F1.3+B2.1 F2.3+B1.1 B2.2 B1.2 I2.3 I1.3 W2.3 "
      "W1.3\n");
}

TEST(Schedules, AShapeThatDoesNotSuitIsRefusedWithTheArithmetic) {
  const auto refusal = [](std::string_view name, const ScheduleShape& shape) -> std::string {
    try {
      make_schedule(name, shape);
    } catch (const ConfigError& error) {
      return error.what();
    }
    return "nothing was thrown";
  };
  EXPECT_THAT(refusal("1f2b", {2, 2, 2}), HasSubstr("There are naive, gpipe, 1f1b"));
  EXPECT_THAT(refusal("1f1b", {2, 4, 4}), HasSubstr("4 stages on 2 ranks, but a rank holds one"));
  EXPECT_THAT(refusal("zb-v", {4, 4, 4}), HasSubstr("2 x 4 = 8"));
  EXPECT_THAT(refusal("interleaved-1f1b", {3, 8, 4}), HasSubstr("8 = 3 x 2 + 2"));
  EXPECT_THAT(refusal("gpipe", {0, 0, 4}), HasSubstr("at least 1"));
  EXPECT_THAT(refusal("gpipe", {4, 4, 0}), HasSubstr("at least 1"));
  EXPECT_THAT(refusal("gpipe", {1, 1, 1 << 30}), HasSubstr("go to"));
}

TEST(Schedules, RanksAreChosenWhereNoneAreGiven) {
  EXPECT_EQ(make_schedule("gpipe", {.stages = 4, .microbatches = 2}).ranks(), 4);
  EXPECT_EQ(make_schedule("zb-v", {.stages = 4, .microbatches = 2}).ranks(), 2);
  EXPECT_EQ(make_schedule("interleaved-1f1b", {.stages = 4, .microbatches = 2}).ranks(), 2);
  EXPECT_EQ(make_schedule("interleaved-1f1b", {.stages = 3, .microbatches = 2}).ranks(), 3);
}

}  // namespace
}  // namespace trireme
