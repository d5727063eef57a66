#include "trireme/cli/bench/bench_scale.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace trireme::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST(Scale, TheRankWithMostMicroBatchesSetsTheTime) {
  EXPECT_DOUBLE_EQ(share_of_compute(1.2, 12, 1), 1.2);
  EXPECT_DOUBLE_EQ(share_of_compute(1.2, 12, 4), 0.3);
  EXPECT_DOUBLE_EQ(share_of_compute(1.2, 12, 5), 0.3);  // one rank has three
  EXPECT_DOUBLE_EQ(share_of_compute(1.2, 12, 12), 0.1);
}

TEST(Scale, DrawsWhatIsThere) {
  const std::vector<ScalePoint> points = {
      {.ranks = 1, .step_seconds = 1, .samples_per_second = 8, .speedup = 1},
      {.ranks = 2, .step_seconds = 0.6, .samples_per_second = 13.3, .speedup = 1.67},
      {.simulated = true, .ranks = 8, .step_seconds = 0.2, .samples_per_second = 40, .speedup = 5}};
  const std::string svg = draw_scale("tiny", points, "links of 1us,1GB/s");
  for (const char* text : {"tiny: samples a second over ranks", "links of 1us,1GB/s", "strong",
                           "strong, simulated", "ideal"})
    EXPECT_THAT(svg, HasSubstr(text));
  EXPECT_THAT(svg, Not(HasSubstr("weak")));
}

}  // namespace
}  // namespace trireme::cli
