#include "trireme/input/batch_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "trireme/base/error.h"
#include "trireme/input/epoch_order.h"

namespace trireme::input {
namespace {

using ::testing::HasSubstr;

TEST(Philox, MatchesTheAuthorsVectors) {  // Random123's kat_vectors, philox4x32 10
  using kernel::philox;
  using kernel::PhiloxBlock;
  EXPECT_EQ(philox(0, PhiloxBlock{0, 0, 0, 0}),
            (PhiloxBlock{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(philox(~std::uint64_t{0}, PhiloxBlock{~0u, ~0u, ~0u, ~0u}),
            (PhiloxBlock{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox(0x299f31d0a4093822, PhiloxBlock{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}),
            (PhiloxBlock{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(RandomBelow, NumbersStayBelowTheBoundAndSpread) {
  std::map<std::uint64_t, int> seen;
  for (int i = 0; i < 10000; ++i) ++seen[random_below(10, 7, 3, i)];
  ASSERT_EQ(seen.size(), 10u);
  for (const auto& [value, count] : seen) EXPECT_NEAR(count, 1000, 150) << value;
}

TEST(BatchPlan, CutsAnEpochIntoBatchesAndKeepsTheShortOne) {
  const auto show = [](std::int64_t number) {
    const GlobalBatch b = global_batch(number, 10, 4);
    return std::vector<std::int64_t>{b.epoch, b.first, b.count, b.last_of_epoch};
  };
  EXPECT_EQ(show(0), (std::vector<std::int64_t>{0, 0, 4, 0}));
  EXPECT_EQ(show(2), (std::vector<std::int64_t>{0, 8, 2, 1}));
  EXPECT_EQ(show(3), (std::vector<std::int64_t>{1, 0, 4, 0}));
  EXPECT_EQ(global_batch(5, 0, 4).first, 20);
  EXPECT_FALSE(global_batch(5, 0, 4).last_of_epoch);
}

TEST(BatchPlan, SharesCoverEachMicroBatchOnceOnAnyRankCount) {
  for (int size : {1, 2, 3, 4, 5, 8}) {
    for (std::int64_t number : {0, 1, 2}) {
      const GlobalBatch batch = global_batch(number, 21, 8);
      std::int64_t at = batch.first;
      std::uint32_t index = 0;
      for (int rank = 0; rank < size; ++rank) {
        for (const MicroRange& range : share_of(batch, 2, kernel::contiguous(size), rank)) {
          EXPECT_EQ(range.index, index++);
          EXPECT_EQ(range.first, at);
          at += range.count;
        }
      }
      EXPECT_EQ(at, batch.first + batch.count);
      EXPECT_EQ(index, num_micro_batches(batch, 2));
    }
  }
}

std::string refusal(std::int64_t batch, std::int64_t micro, int size, std::int64_t n = 0) {
  try {
    check_batch(batch, micro, size, n);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "accepted";
}

TEST(BatchPlan, RefusalsShowTheArithmetic) {
  EXPECT_EQ(refusal(12, 4, 3), "accepted");
  EXPECT_THAT(refusal(12, 5, 2), AllOf(HasSubstr("12 = 2 x 5 + 2"), HasSubstr("4 and 6")));
  EXPECT_THAT(refusal(4, 8, 1), HasSubstr("4 = 0 x 8 + 4"));
  EXPECT_THAT(refusal(12, 4, 4), HasSubstr("12 samples / 4 = 3 micro-batches for 4 ranks"));
  EXPECT_THAT(refusal(12, 4, 3, 8), HasSubstr("8 samples / 4 = 2 micro-batches for 3 ranks"));
  EXPECT_THAT(refusal(0, 4, 1), HasSubstr("at least 1"));
}

}  // namespace
}  // namespace trireme::input
