#include "trireme/base/words.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace trireme {
namespace {

TEST(Words, CountsAreGroupedAndAgreeInNumber) {
  EXPECT_EQ(grouped(1234567), "1,234,567");
  EXPECT_EQ(grouped(-123), "-123");
  EXPECT_EQ(grouped(-1234), "-1,234");
  EXPECT_EQ(counted(1, "file"), "1 file");
  EXPECT_EQ(counted(0, "file"), "0 files");
  EXPECT_EQ(counted(12345, "micro-batch", "micro-batches"), "12,345 micro-batches");
}

TEST(Words, BytesGrowWithTheirUnit) {
  EXPECT_EQ(bytes_text(0), "0 bytes");
  EXPECT_EQ(bytes_text(1), "1 byte");
  EXPECT_EQ(bytes_text(999), "999 bytes");
  EXPECT_EQ(bytes_text(999.7), "1.0 kB");
  EXPECT_EQ(bytes_text(820e3), "820 kB");
  EXPECT_EQ(bytes_text(1.44e6), "1.4 MB");
  EXPECT_EQ(bytes_text(346787e6), "347 GB");
  EXPECT_EQ(bytes_text(432028838e6), "432 TB");
  EXPECT_EQ(bytes_text(1e24), "1000000 EB");
  EXPECT_EQ(bytes_text(std::numeric_limits<double>::infinity()), "unknown");
}

TEST(Words, SizesThatWereChosenAreExact) {
  EXPECT_EQ(size_text(65536), "64 KiB");
  EXPECT_EQ(size_text(3u << 20), "3 MiB");
  EXPECT_EQ(size_text(std::size_t{2} << 30), "2 GiB");
  EXPECT_EQ(size_text(1000), "1,000 B");
  EXPECT_EQ(size_text(8), "8 B");
}

TEST(Words, DurationsAreNeverZeroUnlessTheyAre) {
  EXPECT_EQ(duration_text(0), "0 s");
  EXPECT_EQ(duration_text(25e-6), "25 us");
  EXPECT_EQ(duration_text(0.0018), "1.8 ms");
  EXPECT_EQ(duration_text(0.42), "420 ms");
  EXPECT_EQ(duration_text(0.9999), "1 s");
  EXPECT_EQ(duration_text(1), "1 s");
  EXPECT_EQ(duration_text(5.31), "5.3 s");
  EXPECT_EQ(duration_text(9.97), "10 s");
  EXPECT_EQ(duration_text(42.3), "42 s");
  EXPECT_EQ(duration_text(59.7), "1 min");
  EXPECT_EQ(duration_text(200), "3 min 20 s");
  EXPECT_EQ(duration_text(3900), "1 h 5 min");
  EXPECT_EQ(duration_text(20846.059), "5 h 47 min");
  EXPECT_EQ(duration_text(86399), "1 d");
  EXPECT_EQ(duration_text(51 * 3600), "2 d 3 h");
  EXPECT_EQ(duration_text(86400e20), "1e+20 d");
  EXPECT_EQ(duration_text(-0.5), "-500 ms");
}

TEST(Words, NumbersHaveTheFewestDigits) {
  EXPECT_EQ(number_text(0.003), "0.003");
  EXPECT_EQ(number_text(2), "2");
  EXPECT_EQ(number_text(1e-8), "1e-08");
  EXPECT_EQ(number_text(std::copysign(std::nan(""), -1)), "nan");
  EXPECT_EQ(formatted("%.3f", std::copysign(std::nan(""), -1)), "nan");
}

}  // namespace
}  // namespace trireme
