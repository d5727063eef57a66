#include "trireme/optim/schedule.h"

#include <gtest/gtest.h>

namespace trireme::optim {
namespace {

TEST(Schedule, WarmsUpThenFollowsACosine) {
  const Schedule schedule{.peak = 1e-3, .final_rate = 1e-4, .warmup = 100, .steps = 2000};
  EXPECT_DOUBLE_EQ(learning_rate(schedule, 0), 1e-3 / 101);
  EXPECT_DOUBLE_EQ(learning_rate(schedule, 99), 1e-3 * 100 / 101);
  EXPECT_DOUBLE_EQ(learning_rate(schedule, 100), 1e-3);
  EXPECT_NEAR(learning_rate(schedule, 1050), 5.5e-4, 1e-12);  // half-way: the mean of both ends
  EXPECT_DOUBLE_EQ(learning_rate(schedule, 2000), 1e-4);
  EXPECT_DOUBLE_EQ(learning_rate(schedule, 5000), 1e-4);
  for (int step = 101; step < 2000; ++step) {
    EXPECT_LT(learning_rate(schedule, step), learning_rate(schedule, step - 1));
  }
}

TEST(Schedule, ConstantWithoutAnEnd) {
  EXPECT_DOUBLE_EQ(learning_rate({.peak = 0.5}, 123456), 0.5);
}

TEST(Clipping, ScalesDownOnly) {
  EXPECT_DOUBLE_EQ(clipping_factor(0.5, 1.0), 1.0);
  EXPECT_NEAR(clipping_factor(4.0, 1.0), 0.25, 1e-6);
  EXPECT_DOUBLE_EQ(clipping_factor(4.0, 0.0), 1.0);
}

}  // namespace
}  // namespace trireme::optim
