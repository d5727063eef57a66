#include "trireme/show/collective/cost.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trireme/plan/link.h"
#include "trireme/show/drawing/picture.h"

namespace trireme {
namespace {

using namespace show;

TEST(Cost, WritesNumbersForPeople) {
  EXPECT_EQ(rate_text(1e-9), "1 GB/s");
  EXPECT_EQ(rate_text(1 / 999.4e6), "999 MB/s");
  EXPECT_EQ(rate_text(1 / 999.6e6), "1 GB/s");
  EXPECT_EQ(rate_text(0.5e-12), "2 TB/s");
}

TEST(Cost, FormulaAndTimeOfARingOfTwo) {
  const Recording ring = record({.kind = comm::OpKind::AllReduce, .algorithm = "ring", .ranks = 2});
  EXPECT_EQ(formula_of(shape_of(ring)), "2 α + 1 S β + 0.50 S γ");
  // 2 * 25 us + 1 MB at 1 GB/s + 0.5 MB at 10 GB/s
  EXPECT_THAT(footer(ring, plan::kDefaultLink, 1000000), ::testing::HasSubstr("1.1 ms"));
  EXPECT_THAT(footer(ring, {.alpha = 999.7e-6, .beta = 1e-9, .gamma = 1e-10}, 0),
              ::testing::HasSubstr("a message costs α = 1 ms,"));
}

}  // namespace
}  // namespace trireme
