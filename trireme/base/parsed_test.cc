#include "trireme/base/parsed.h"

#include <gtest/gtest.h>

namespace trireme {
namespace {

TEST(Parsed, IsTheWholeText) {
  EXPECT_EQ(parsed<int>("-12"), -12);
  EXPECT_EQ(parsed<double>("1.5"), 1.5);
  for (const char* none : {"", " 1", "1 ", "+1", "1.5", "one", "3000000000"})
    EXPECT_EQ(parsed<int>(none), std::nullopt) << none;
  EXPECT_EQ(parsed<double>("1,5"), std::nullopt);
}

}  // namespace
}  // namespace trireme
