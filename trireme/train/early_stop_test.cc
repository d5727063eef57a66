#include "trireme/train/early_stop.h"

#include <gtest/gtest.h>

#include <limits>

#include "trireme/base/error.h"

namespace trireme {
namespace {

using train::EarlyStop;

// The number of losses that are judged before the end.
int looked_at(EarlyStop stop, const std::vector<double>& losses) {
  int count = 0;
  for (const double loss : losses) {
    stop.judge(++count, loss);
    if (stop.reached()) break;
  }
  return count;
}

TEST(EarlyStop, EndsAfterItsPatience) {
  EXPECT_EQ(looked_at({2, 0}, {5, 4, 4.5, 4, 3, 2}), 4);    // 4.5 and 4 are no improvement on 4
  EXPECT_EQ(looked_at({2, 0}, {5, 4, 4.5, 3, 3.5, 2}), 6);  // 3 resets the count
  EXPECT_EQ(looked_at({2, 0.5}, {5, 4.8, 4.6, 4.4}), 3);    // improvements are too small
  EXPECT_EQ(looked_at({0, 0}, {1, 2, 3, 4, 5}), 5);         // never
  const double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_EQ(looked_at({1, 0}, {1, nan, 0.5}), 2);
  EXPECT_EQ(looked_at({2, 0}, {nan, 3, 2, 1}), 4);
}

TEST(EarlyStop, KnowsWhichLossesItHasJudged) {
  EarlyStop first(3, 0);
  EXPECT_TRUE(first.lacks(0));
  first.judge(0, 2);
  first.judge(10, 1);
  EarlyStop second(3, 0);
  second.restored(first.metadata());
  EXPECT_FALSE(second.lacks(10));
  EXPECT_TRUE(second.lacks(20));
}

// A rank was lost after the loss was judged and before it was in the run's events.
TEST(EarlyStop, AValidationThatIsMadeAgainCountsOnce) {
  EarlyStop stop(2, 0);
  stop.judge(10, 1);
  stop.judge(20, 2);
  const std::string before = stop.metadata();
  stop.judge(20, 2);
  EXPECT_EQ(stop.metadata(), before);
  EXPECT_FALSE(stop.reached());
  stop.judge(30, 2);
  EXPECT_TRUE(stop.reached());
}

TEST(EarlyStop, ARunThatBeganWithNanCanBeResumed) {
  EarlyStop first(3, 0);
  first.judge(10, std::numeric_limits<double>::quiet_NaN());
  first.judge(20, std::numeric_limits<double>::infinity());
  EarlyStop second(3, 0);
  second.restored(first.metadata());
  second.judge(30, 2);
  EXPECT_EQ(second.best_loss(), 2);
  EXPECT_FALSE(second.reached());
}

TEST(EarlyStop, CountsOverAnInterruption) {
  EarlyStop first(2, 0);
  first.judge(10, 1.5 + 1e-16);
  first.judge(20, 1.75);
  EXPECT_FALSE(first.reached());
  EarlyStop second(2, 0);
  second.restored(first.metadata());
  EXPECT_EQ(second.best_loss(), first.best_loss());
  EXPECT_EQ(second.best_step(), 10);
  second.judge(30, 1.6);
  EXPECT_TRUE(second.reached());
  EarlyStop patient(3, 0);
  patient.restored(second.metadata());
  EXPECT_FALSE(patient.reached());
  EXPECT_THROW(second.restored("{}"), CheckpointError);
  EXPECT_THROW(second.restored("x"), CheckpointError);
}

}  // namespace
}  // namespace trireme
