#include "trireme/base/clock.h"

#include <limits>

#include <gtest/gtest.h>

namespace trireme {
namespace {

TEST(Clock, ANegativeDurationIsADeadlineThatIsOver) {
  const auto deadline = Deadline::in(std::chrono::seconds(-1));
  EXPECT_FALSE(deadline.is_job());
  EXPECT_EQ(deadline.duration(), Duration::zero());
  const TimePoint now(std::chrono::hours(1));
  EXPECT_EQ(deadline.from(now), now);
}

TEST(Clock, SecondsBeyondADurationAreClamped) {
  EXPECT_EQ(from_seconds(1.5), std::chrono::milliseconds(1500));
  EXPECT_EQ(from_seconds(-1.5), std::chrono::milliseconds(-1500));
  const Duration most = std::chrono::seconds(4'000'000'000);
  EXPECT_EQ(from_seconds(1e300), most);
  EXPECT_EQ(from_seconds(std::numeric_limits<double>::infinity()), most);
  EXPECT_EQ(from_seconds(-1e300), -most);
  EXPECT_EQ(from_seconds(std::numeric_limits<double>::quiet_NaN()), Duration::zero());
  EXPECT_GT(TimePoint(most) + from_seconds(1e300), TimePoint(most));
}

}  // namespace
}  // namespace trireme
