#include "trireme/base/nearest.h"

#include <gtest/gtest.h>

namespace trireme {
namespace {

TEST(Nearest, IsTheOneWithTheFewestEdits) {
  const std::vector<std::string> commands = {"train", "plan", "bench", "compare"};
  EXPECT_EQ(nearest("tarin", commands), "train");
  EXPECT_EQ(nearest("plam", commands), "plan");
  EXPECT_EQ(nearest("benchmark", commands), "bench");
  EXPECT_EQ(nearest("--ranks-of-it", commands), "");
  EXPECT_EQ(nearest("", commands), "");
  EXPECT_EQ(nearest("train", {}), "");
}

TEST(Nearest, EditsAreInsertionsDeletionsAndSubstitutions) {
  EXPECT_EQ(edit_distance("", "abc"), 3u);
  EXPECT_EQ(edit_distance("kitten", "sitting"), 3u);
  EXPECT_EQ(edit_distance("same", "same"), 0u);
}

}  // namespace
}  // namespace trireme
