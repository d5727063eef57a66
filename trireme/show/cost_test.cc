#include "trireme/show/cost.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trireme/base/error.h"
#include "trireme/show/text.h"

namespace trireme {
namespace {

using namespace show;

TEST(Cost, ReadsALink) {
  const plan::LinkCost link = link_of("25us,1GB/s");
  EXPECT_DOUBLE_EQ(link.alpha, 25e-6);
  EXPECT_DOUBLE_EQ(link.beta, 1e-9);
  EXPECT_DOUBLE_EQ(link.gamma, kDefaultLink.gamma);
  const plan::LinkCost other = link_of("1.5ms,10Gbit/s,5GB/s");
  EXPECT_DOUBLE_EQ(other.alpha, 1.5e-3);
  EXPECT_DOUBLE_EQ(other.beta, 8e-10);
  EXPECT_DOUBLE_EQ(other.gamma, 2e-10);
  for (const char* wrong : {"", "25us", "25,1GB/s", "25us,0GB/s", "25us,1GB", "-1us,1GB/s",
                            "25us,1GB/s,", "nanus,1GB/s", "25us,1GB/s,1GB/s,1GB/s"}) {
    EXPECT_THROW(link_of(wrong), ConfigError) << wrong;
  }
}

TEST(Cost, ReadsASize) {
  EXPECT_EQ(bytes_of("4096"), 4096u);
  EXPECT_EQ(bytes_of("64KiB"), 65536u);
  EXPECT_EQ(bytes_of("1.5M"), 1572864u);
  EXPECT_EQ(size_text(bytes_of("2GiB")), "2 GiB");
  EXPECT_EQ(size_text(1000000), "1,000,000 B");
  for (const char* wrong : {"", "x", "4 KiB", "-1", "1e30"}) {
    EXPECT_THROW(bytes_of(wrong), ConfigError) << wrong;
  }
}

TEST(Cost, FormulaAndTimeOfARingOfTwo) {
  const Recording ring = record({.kind = comm::OpKind::AllReduce, .algorithm = "ring", .ranks = 2});
  EXPECT_EQ(formula_of(shape_of(ring)), "2 α + 1 S β + 0.50 S γ");
  // 2 * 25 us + 1 MB at 1 GB/s + 0.5 MB at 10 GB/s
  EXPECT_THAT(footer(ring, kDefaultLink, 1000000), ::testing::HasSubstr("1.1 ms"));
}

}  // namespace
}  // namespace trireme
