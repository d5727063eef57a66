#include "trireme/plan/link.h"

#include <gtest/gtest.h>

#include "trireme/base/error.h"

namespace trireme {
namespace {

using namespace plan;

TEST(Link, ReadsALink) {
  const LinkCost link = link_of("25us,1GB/s");
  EXPECT_DOUBLE_EQ(link.alpha, 25e-6);
  EXPECT_DOUBLE_EQ(link.beta, 1e-9);
  EXPECT_DOUBLE_EQ(link.gamma, kDefaultLink.gamma);
  const LinkCost other = link_of("1.5ms,10Gbit/s,5GB/s");
  EXPECT_DOUBLE_EQ(other.alpha, 1.5e-3);
  EXPECT_DOUBLE_EQ(other.beta, 8e-10);
  EXPECT_DOUBLE_EQ(other.gamma, 2e-10);
  for (const char* wrong : {"", "25us", "25,1GB/s", "25us,0GB/s", "25us,1GB", "-1us,1GB/s",
                            "25us,1GB/s,", "nanus,1GB/s", "25us,1GB/s,1GB/s,1GB/s", "1e300s,1GB/s",
                            "25us,1e-300B/s", "25us,1e300GB/s"}) {
    EXPECT_THROW(link_of(wrong), ConfigError) << wrong;
  }
}

TEST(Link, ReadsATime) {
  EXPECT_DOUBLE_EQ(seconds_of("25us"), 25e-6);
  EXPECT_DOUBLE_EQ(seconds_of("1.5ms"), 1.5e-3);
  EXPECT_DOUBLE_EQ(seconds_of("2s"), 2);
  for (const char* wrong : {"", "25", "ms", "-1ms", "1 ms", "1h", "1e300s"}) {
    EXPECT_THROW(seconds_of(wrong), ConfigError) << wrong;
  }
}

TEST(Link, ReadsASize) {
  EXPECT_EQ(bytes_of("4096"), 4096u);
  EXPECT_EQ(bytes_of("64KiB"), 65536u);
  EXPECT_EQ(bytes_of("1.5M"), 1572864u);
  EXPECT_EQ(bytes_of("2GiB"), std::size_t{2} << 30);
  for (const char* wrong : {"", "x", "4 KiB", "-1", "1e30"}) {
    EXPECT_THROW(bytes_of(wrong), ConfigError) << wrong;
  }
}

}  // namespace
}  // namespace trireme
