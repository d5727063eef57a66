#include "trireme/base/joined.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace trireme {
namespace {

TEST(Joined, PutsTheSeparatorBetweenItemsOnly) {
  EXPECT_EQ(joined(std::vector<std::string>{}), "");
  EXPECT_EQ(joined(std::vector<std::string>{"a"}), "a");
  EXPECT_EQ(joined(std::vector<std::string>{"a", "", "b"}), "a, , b");
  const auto text = [](int number) { return std::to_string(number); };
  EXPECT_EQ(joined(std::vector{1, 2, 3}, text, "+"), "1+2+3");
  struct Named {
    std::string name;
  };
  EXPECT_EQ(joined(std::vector<Named>{{"x"}, {"y"}}, &Named::name), "x, y");
}

}  // namespace
}  // namespace trireme
