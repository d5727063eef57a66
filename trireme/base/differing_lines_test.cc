#include "trireme/base/differing_lines.h"

#include <gtest/gtest.h>

namespace trireme {
namespace {

TEST(DifferingLines, AreThoseThatTheOtherTextLacks) {
  const std::string mine = "model.width = 8\ntrain.seed = 1\nproducts = avx2\n";
  const std::string theirs = "model.width = 8\ntrain.seed = 2\n\nproducts = avx512";
  EXPECT_EQ(differing_lines(mine, theirs), "train.seed = 1, products = avx2");
  EXPECT_EQ(differing_lines(theirs, mine), "train.seed = 2, products = avx512");
  EXPECT_EQ(differing_lines(mine, mine), "nothing");
  EXPECT_EQ(differing_lines(mine, mine + "data = x"), "nothing");
  EXPECT_EQ(differing_lines("seed 7", "seed 8"), "seed 7");
  EXPECT_EQ(differing_lines("", ""), "nothing");
}

}  // namespace
}  // namespace trireme
