#include "trireme/ps/server/exact_sum.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <random>
#include <vector>

namespace trireme::exact_sum_test {
namespace {

using ps::ExactSum;

TEST(ExactSum, DoesNotDependOnTheOrderOrTheDivision) {
  std::mt19937_64 random(1);
  std::vector<double> values;
  for (int i = 0; i < 5'000; ++i)
    values.push_back(
        std::ldexp(static_cast<double>(random() >> 11), static_cast<int>(random() % 200) - 150));
  ExactSum first;
  for (const double value : values) first.add(value);
  for (int round = 0; round < 5; ++round) {
    std::shuffle(values.begin(), values.end(), random);
    ExactSum parts[3];
    for (std::size_t i = 0; i < values.size(); ++i) parts[i % 3].add(values[i]);
    parts[0].add(parts[2]);
    parts[0].add(parts[1]);
    EXPECT_EQ(parts[0].value(), first.value());
  }
  long double expected = 0;
  std::sort(values.begin(), values.end());
  for (const double value : values) expected += value;
  EXPECT_NEAR(first.value() / static_cast<double>(expected), 1, 1e-15);
}

TEST(ExactSum, HoldsEveryDouble) {
  for (const double value : {0.0, 1.0, 0.1, 5e-324, std::numeric_limits<double>::min(),
                             std::numeric_limits<double>::max(), 1e-300, 3.0e38}) {
    ExactSum sum;
    sum.add(value);
    EXPECT_EQ(sum.value(), value);
  }
  ExactSum ones;  // what plain addition loses
  ones.add(1e20);
  for (int i = 0; i < 100'000; ++i) ones.add(1);
  EXPECT_EQ(ones.value(), 1e20 + 100'000);
}

}  // namespace
}  // namespace trireme::exact_sum_test
