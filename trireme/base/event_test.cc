#include "trireme/base/event.h"

#include <gtest/gtest.h>

#include <thread>

namespace trireme {
namespace {

using std::chrono::milliseconds;

TEST(Event, RunsOutAfterItsTimeout) {
  Event event;
  const TimePoint start = steady_now();
  EXPECT_FALSE(event.wait(milliseconds(20)));
  EXPECT_GE(steady_now() - start, milliseconds(20));
}

TEST(Event, WakesAtOnceAndStaysSet) {
  Event event;
  const TimePoint start = steady_now();
  std::thread setter([&] { event.set(); });
  EXPECT_TRUE(event.wait(std::chrono::seconds(20)));
  EXPECT_TRUE(event.wait(Duration::zero()));
  EXPECT_TRUE(event.wait(Duration::max()));
  EXPECT_LT(steady_now() - start, std::chrono::seconds(10));
  setter.join();
}

}  // namespace
}  // namespace trireme
