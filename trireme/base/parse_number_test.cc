#include "trireme/base/parse_number.h"

#include <gtest/gtest.h>

#include <cstdint>

namespace trireme {
namespace {

TEST(ParseNumber, TakesWholeTextsOnly) {
  EXPECT_EQ(parse_number<int>("-12"), -12);
  EXPECT_EQ(parse_number<double>("1e-3"), 1e-3);
  for (const char* text : {"", " 1", "1 ", "+1", "1.5", "0x1", "one", "3000000000"})
    EXPECT_EQ(parse_number<int>(text), std::nullopt) << text;
  EXPECT_EQ(parse_number<std::int64_t>("3000000000"), 3'000'000'000);
  EXPECT_EQ(parse_number<unsigned>("-1"), std::nullopt);
}

}  // namespace
}  // namespace trireme
