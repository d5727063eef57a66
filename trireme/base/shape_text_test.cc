#include "trireme/base/shape_text.h"

#include <gtest/gtest.h>

namespace trireme {
namespace {

TEST(ShapeText, IsAListInBrackets) {
  EXPECT_EQ(shape_text({}), "[]");
  const std::int64_t vector[] = {1000}, matrix[] = {2, 3};
  EXPECT_EQ(shape_text(vector), "[1000]");
  EXPECT_EQ(shape_text(matrix), "[2, 3]");
}

}  // namespace
}  // namespace trireme
