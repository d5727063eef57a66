#include "trireme/optim/chunk_sum.h"

#include <gtest/gtest.h>

#include <random>

#include "trireme/kernel/tree_sum.h"

namespace trireme::optim {
namespace {

using Leaf = std::pair<std::size_t, std::vector<double>>;  // first, values

std::vector<Leaf> leaves_of(std::uint32_t chunks, std::size_t width) {
  std::mt19937 generator(chunks);
  std::uniform_real_distribution<double> draw(0, 1e3);
  std::vector<Leaf> leaves;
  for (std::uint32_t chunk = 0; chunk < chunks; ++chunk) {
    const std::size_t first = generator() % width;
    Leaf& leaf = leaves.emplace_back(first, std::vector<double>(1 + generator() % (width - first)));
    for (double& value : leaf.second) value = draw(generator);
  }
  return leaves;
}

// The tree of docs/numerics.md, on dense vectors.
std::vector<double> tree(const std::vector<Leaf>& leaves, std::size_t width, std::size_t a,
                         std::size_t b) {
  if (b - a == 1) {
    std::vector<double> dense(width, 0.0);
    std::copy(leaves[a].second.begin(), leaves[a].second.end(),
              dense.begin() + static_cast<std::ptrdiff_t>(leaves[a].first));
    return dense;
  }
  const std::size_t middle = a + (b - a) / 2;
  std::vector<double> left = tree(leaves, width, a, middle);
  const std::vector<double> right = tree(leaves, width, middle, b);
  for (std::size_t i = 0; i < width; ++i) left[i] += right[i];
  return left;
}

TEST(ChunkSum, IsTheTreeOfTheDenseLeaves) {
  for (const std::uint32_t chunks : {1u, 2u, 3u, 7u, 8u, 100u}) {
    const std::vector<Leaf> leaves = leaves_of(chunks, 31);
    ChunkSum sum(0, chunks, 31);
    for (std::uint32_t i = 0; i < chunks; ++i) sum.add(i, leaves[i].first, leaves[i].second);
    EXPECT_TRUE(sum.is_whole());
    EXPECT_EQ(sum.total(), tree(leaves, 31, 0, chunks)) << chunks;
    EXPECT_EQ(sum.total(), tree(leaves, 31, 0, chunks)) << "asked twice";
  }
}

TEST(ChunkSum, APartHasItsMaximalNodes) {
  const std::vector<Leaf> leaves = leaves_of(12, 5);
  ChunkSum sum(0, 12, 5);
  for (std::uint32_t i = 4; i < 11; ++i) sum.add(i, leaves[i].first, leaves[i].second);
  const std::vector<kernel::LeafRange> wanted = kernel::maximal_nodes({4, 7}, 12);
  ASSERT_EQ(sum.nodes().size(), wanted.size());
  for (std::size_t i = 0; i < wanted.size(); ++i) EXPECT_EQ(sum.nodes()[i].chunks, wanted[i]);
  EXPECT_FALSE(sum.is_whole());
  sum.complete({1, 2, 3, 4, 5});
  EXPECT_EQ(sum.total()[4], 5);
}

}  // namespace
}  // namespace trireme::optim
