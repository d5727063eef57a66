#include "trireme/optim/schedule.h"

#include <gtest/gtest.h>

#include <cmath>

#include "trireme/base/error.h"

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
  EXPECT_DOUBLE_EQ(learning_rate({.peak = 0.5, .steps = 10, .decay = Decay::Constant}, 9), 0.5);
}

TEST(Schedule, LinearAndPolynomialFallToTheEnd) {
  Schedule schedule{
      .peak = 1, .final_rate = 0.2, .warmup = 10, .steps = 110, .decay = Decay::Linear};
  EXPECT_DOUBLE_EQ(learning_rate(schedule, 10), 1);
  EXPECT_DOUBLE_EQ(learning_rate(schedule, 35), 0.8);
  EXPECT_DOUBLE_EQ(learning_rate(schedule, 110), 0.2);
  schedule.decay = Decay::Polynomial;
  schedule.power = 2;
  EXPECT_DOUBLE_EQ(learning_rate(schedule, 60), 0.2 + 0.25 * 0.8);
  EXPECT_DOUBLE_EQ(learning_rate(schedule, 1000), 0.2);
}

TEST(Schedule, StaysStableUntilItsDecay) {
  const Schedule schedule{.peak = 1,
                          .final_rate = 0,
                          .warmup = 3,
                          .steps = 100,
                          .decay = Decay::Stable,
                          .decay_steps = 20};
  EXPECT_DOUBLE_EQ(learning_rate(schedule, 1), 0.5);
  for (int step = 3; step <= 80; ++step) EXPECT_DOUBLE_EQ(learning_rate(schedule, step), 1);
  EXPECT_DOUBLE_EQ(learning_rate(schedule, 90), 0.5);
  EXPECT_DOUBLE_EQ(learning_rate(schedule, 99), 0.05);
}

// The same numbers as torch.optim.lr_scheduler.OneCycleLR(max_lr=1, total_steps=10,
// final_div_factor = 1000), PyTorch 2.13.
TEST(Schedule, OneCycleIsTorchs) {
  const Schedule schedule{
      .peak = 1, .final_rate = 1.0 / 25 / 1000, .steps = 10, .decay = Decay::OneCycle};
  const double wanted[] = {0.04,
                           0.52,
                           1.0,
                           0.9504864145738515,
                           0.8117524311333296,
                           0.611276016559478,
                           0.38876398344052193,
                           0.18828756886667045,
                           0.04955358542614853,
                           4e-05};
  for (int step = 0; step < 10; ++step)
    EXPECT_NEAR(learning_rate(schedule, step), wanted[step], 1e-12) << step;
  EXPECT_NEAR(learning_rate(schedule, 500), 4e-05, 1e-12);
}

TEST(Schedule, StepsDown) {
  const Schedule schedule{
      .peak = 0.8, .warmup = 5, .steps = 100, .decay = Decay::Step, .every = 30, .factor = 0.5};
  EXPECT_DOUBLE_EQ(learning_rate(schedule, 5), 0.8);
  EXPECT_DOUBLE_EQ(learning_rate(schedule, 34), 0.8);
  EXPECT_DOUBLE_EQ(learning_rate(schedule, 35), 0.4);
  EXPECT_DOUBLE_EQ(learning_rate(schedule, 65), 0.2);
}

TEST(Schedule, WrongNumbersAreRefused) {
  EXPECT_THROW(check({.warmup = 5, .steps = 100, .decay = Decay::OneCycle}), ConfigError);
  EXPECT_THROW(check({.steps = 2, .decay = Decay::OneCycle}), ConfigError);
  EXPECT_THROW(check({.steps = 2, .decay = Decay::Step}), ConfigError);
  EXPECT_THROW(check({.warmup = 50, .steps = 100, .decay = Decay::Stable, .decay_steps = 51}),
               ConfigError);
  EXPECT_NO_THROW(check({.warmup = 50, .steps = 100, .decay = Decay::Stable, .decay_steps = 50}));
  for (const double wrong : {std::nan(""), std::numeric_limits<double>::infinity(), -1.0}) {
    EXPECT_THROW(check({.peak = wrong}), ConfigError) << wrong;
    EXPECT_THROW(check({.final_rate = wrong}), ConfigError) << wrong;
    EXPECT_THROW(check({.start_divisor = wrong}), ConfigError) << wrong;
  }
  EXPECT_THROW(check({.steps = 100, .decay = Decay::OneCycle, .start_divisor = 0}), ConfigError);
  EXPECT_THROW(check({.steps = 100, .decay = Decay::OneCycle, .rise = 1.5}), ConfigError);
  EXPECT_THROW(check({.steps = -5}), ConfigError);
  EXPECT_THROW(check({.warmup = -1, .steps = 100}), ConfigError);
  EXPECT_THROW(check({.steps = 100, .decay = Decay::Stable, .decay_steps = -1}), ConfigError);
  EXPECT_THROW(check({.steps = 100, .every = -1}), ConfigError);
  EXPECT_THROW(check({.warmup = std::numeric_limits<std::int64_t>::max(),
                      .steps = 100,
                      .decay = Decay::Stable,
                      .decay_steps = 1}),
               ConfigError);
  EXPECT_NO_THROW(check({.steps = 100, .decay = Decay::OneCycle}));
  EXPECT_THROW(decay_of("cosin"), ConfigError);
  for (const std::string& name : decay_names()) EXPECT_EQ(name_of(decay_of(name)), name);
}

TEST(Schedule, TheRateGrowsWithTheBatch) {
  EXPECT_DOUBLE_EQ(scaled_rate(0.1, 8192, 256), 3.2);
  EXPECT_DOUBLE_EQ(scaled_rate(0.1, 8192, 0), 0.1);
}

TEST(Clipping, ScalesDownOnly) {
  EXPECT_DOUBLE_EQ(clipping_factor(0.5, 1.0), 1.0);
  EXPECT_NEAR(clipping_factor(4.0, 1.0), 0.25, 1e-6);
  EXPECT_DOUBLE_EQ(clipping_factor(4.0, 0.0), 1.0);
}

}  // namespace
}  // namespace trireme::optim
