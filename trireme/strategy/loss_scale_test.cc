#include "trireme/strategy/loss_scale.h"

#include <gtest/gtest.h>

#include "trireme/base/error.h"

namespace trireme::loss_scale_test {
namespace {

using parallel::LossScale;
using parallel::parse_loss_scale;

TEST(LossScale, DoublesAfterAWindowWithoutAnOverflow) {
  LossScale scale({.initial = 8, .window = 3});
  for (int i = 0; i < 2; ++i) scale.passed();
  EXPECT_EQ(scale.scale(), 8);
  scale.overflowed();  // the window starts again
  EXPECT_EQ(scale.scale(), 4);
  for (int i = 0; i < 2; ++i) scale.passed();
  EXPECT_EQ(scale.scale(), 4);
  scale.passed();
  EXPECT_EQ(scale.scale(), 8);
  EXPECT_EQ(scale.state.overflows, 1);
}

TEST(LossScale, StaysBetweenOneAndTwoTo32) {
  LossScale low({.initial = 2});
  EXPECT_TRUE(low.backs_off());
  low.overflowed();
  EXPECT_EQ(low.scale(), 1);
  EXPECT_FALSE(low.backs_off()) << "now it is not the scale's fault";
  LossScale high({.initial = 0x1p32, .window = 1});
  high.passed();
  EXPECT_EQ(high.scale(), 0x1p32);
}

TEST(LossScale, ThatIsGivenStays) {
  LossScale scale({.dynamic = false, .initial = 1024, .window = 1});
  EXPECT_FALSE(scale.backs_off());
  scale.passed();
  EXPECT_EQ(scale.scale(), 1024);
  scale.restore({.scale = 64});
  EXPECT_EQ(scale.scale(), 1024);
}

// The factor on the mean loss differs from the scale by less than a factor of 2.
TEST(LossScale, IsDividedByThePowerOfTwoAtOrAboveTheCount) {
  const LossScale scale({.initial = 1024});
  EXPECT_EQ(scale.loss_gradient(1), 1024);
  EXPECT_EQ(scale.loss_gradient(2), 512);
  EXPECT_EQ(scale.loss_gradient(3), 256);
  EXPECT_EQ(scale.loss_gradient(2048), 0.5);
  EXPECT_EQ(scale.loss_gradient(0), 1024) << "a micro-batch of masked text may count nothing";
}

TEST(LossScale, IsParsed) {
  EXPECT_TRUE(parse_loss_scale("dynamic", 256, 5).dynamic);
  EXPECT_EQ(parse_loss_scale("dynamic", 256, 5).initial, 256);
  EXPECT_EQ(parse_loss_scale("dynamic", 256, 5).window, 5);
  for (const char* text : {"1024", "1024.0"}) {
    EXPECT_FALSE(parse_loss_scale(text, 256, 5).dynamic);
    EXPECT_EQ(parse_loss_scale(text, 256, 5).initial, 1024);
  }
}

TEST(LossScale, RefusesWhatIsNoPowerOfTwoInReach) {
  for (const char* text : {"1000", "0", "-2", "0.5", "8589934592", "nan", "inf", "", "auto", "8x"})
    EXPECT_THROW(parse_loss_scale(text, 65536, 2000), ConfigError) << text;
  EXPECT_THROW(parse_loss_scale("dynamic", 1000, 2000), ConfigError);
  EXPECT_THROW(LossScale({.initial = 3}), ConfigError);
  EXPECT_THROW(LossScale({.window = 0}), ConfigError);
  try {
    parse_loss_scale("1000", 65536, 2000);
  } catch (const ConfigError& error) {
    EXPECT_NE(std::string(error.what()).find("train.loss_scale = 1000 is not a power of two"),
              std::string::npos)
        << error.what();
  }
}

}  // namespace
}  // namespace trireme::loss_scale_test
