#include "trireme/layers/context/positions.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <string>

#include "trireme/base/error.h"

namespace trireme::parallel {
namespace {

std::vector<std::int64_t> numbers(const at::Tensor& tensor) {
  return {tensor.data_ptr<std::int64_t>(), tensor.data_ptr<std::int64_t>() + tensor.numel()};
}

TEST(Positions, AreAChunkFromEachEnd) {
  EXPECT_EQ(numbers(positions_of(8, 0, 2)), (std::vector<std::int64_t>{0, 1, 6, 7}));
  EXPECT_EQ(numbers(positions_of(8, 1, 2)), (std::vector<std::int64_t>{2, 3, 4, 5}));
  EXPECT_EQ(numbers(positions_of(6, 2, 3)), (std::vector<std::int64_t>{2, 3}));
  EXPECT_EQ(numbers(positions_of(3, 0, 1)), (std::vector<std::int64_t>{0, 1, 2}));
}

// Under a causal mask position p sees p + 1 positions; all pairs r and 2N - 1 - r see equally many.
TEST(Positions, AreAsMuchWorkOnEveryRank) {
  for (const int ranks : {2, 3, 4, 8}) {
    const std::int64_t length = 4 * ranks, share = length * (length + 1) / 2 / ranks;
    for (int rank = 0; rank < ranks; ++rank)
      EXPECT_EQ((positions_of(length, rank, ranks) + 1).sum().item<std::int64_t>(), share);
  }
}

TEST(Positions, CutAndJoinAreInverse) {
  const at::Tensor whole = at::arange(2 * 24 * 3, at::kLong).view({2, 24, 3});
  for (const int ranks : {1, 2, 3, 4, 6}) {
    std::vector<at::Tensor> parts;
    for (int rank = 0; rank < ranks; ++rank) {
      parts.push_back(cut_positions(whole, 1, rank, ranks));
      EXPECT_TRUE(at::equal(parts.back(), whole.index_select(1, positions_of(24, rank, ranks))));
    }
    EXPECT_TRUE(at::equal(join_positions(parts, 1), whole)) << ranks;
  }
}

TEST(Positions, OfAMicroBatchAreThoseOfEveryFieldAlongTheSequence) {
  const at::Tensor tokens = at::arange(16, at::kLong).view({2, 8});
  const MicroBatch own = cut_positions(
      MicroBatch{.count = 16,
                 .fields = {{"tokens", tokens}, {"targets", tokens + 1}, {"kind", at::ones({2})}}},
      1, 2);
  EXPECT_EQ(own.count, 16);
  EXPECT_TRUE(at::equal(own.field("tokens"), tokens.narrow(1, 2, 4)));
  EXPECT_TRUE(at::equal(own.field("targets"), tokens.narrow(1, 2, 4) + 1));
  EXPECT_EQ(own.field("kind").numel(), 2);
}

TEST(Positions, RefuseALengthThatDoesNotDivide) {
  try {
    positions_of(10, 0, 4);
    FAIL();
  } catch (const ConfigError& error) {
    EXPECT_NE(std::string(error.what()).find("10 / 8 chunks leaves 2"), std::string::npos)
        << error.what();
  }
}

}  // namespace
}  // namespace trireme::parallel
