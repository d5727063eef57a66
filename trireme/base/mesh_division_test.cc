#include "trireme/base/mesh_division.h"

#include <gtest/gtest.h>

namespace trireme {
namespace {

TEST(MeshDivision, ShowsItsArithmetic) {
  EXPECT_FALSE(refuse_mesh({}, 7));
  EXPECT_FALSE(refuse_mesh({.pipeline = 2, .tensor = 2, .expert = 3}, 12));
  const auto tensor = refuse_mesh({.tensor = 2}, 3);
  ASSERT_TRUE(tensor);
  EXPECT_EQ(tensor->what, "parallel.tensor = 2 does not divide the ranks: 3 = 1 x 2 + 1");
  EXPECT_EQ(tensor->advice, "Use a multiple of 2 ranks.");
  EXPECT_EQ(
      refuse_mesh({.pipeline = 2, .context = 3, .tensor = 2}, 16)->what,
      "parallel.pipeline x parallel.context x parallel.tensor = 2 x 3 x 2 = 12 does not divide "
      "the ranks: 16 = 1 x 12 + 4");
  EXPECT_EQ(refuse_mesh({.expert = 2}, 5)->what,
            "parallel.expert = 2 does not divide data x shard: 5 = 2 x 2 + 1");
  const auto expert = refuse_mesh({.pipeline = 2, .expert = 4}, 12);
  EXPECT_EQ(
      expert->what,
      "parallel.expert = 4 does not divide data x shard: 12 ranks / 2 = 6, and 6 = 1 x 4 + 2");
  EXPECT_EQ(expert->advice, "Use a multiple of 8 ranks.");
  // 2^32, which is 0 in 32 bits.
  EXPECT_EQ(refuse_mesh({.pipeline = 4096, .context = 256, .tensor = 4096}, 4)->advice,
            "Use a multiple of 4294967296 ranks.");
}

}  // namespace
}  // namespace trireme
