#include "trireme/plan/memory_choice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace trireme::plan {
namespace {

using ::testing::ElementsAre;
using Blocks = std::vector<std::vector<MemoryOption>>;

MemoryChoice evaluated(const Blocks& blocks, std::vector<std::size_t> option) {
  MemoryChoice choice{.option = std::move(option)};
  std::int64_t once = 0;
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    const MemoryOption& taken = blocks[i][choice.option[i]];
    choice.bytes += taken.stays;
    choice.cost += taken.cost;
    once = std::max(once, taken.once);
  }
  choice.bytes += once;
  return choice;
}

// Tries every choice.
std::optional<MemoryChoice> by_trying_all(const Blocks& blocks, std::int64_t limit) {
  std::vector<std::size_t> option(blocks.size(), 0);
  std::optional<MemoryChoice> best;
  while (true) {
    const MemoryChoice one = evaluated(blocks, option);
    if (one.bytes <= limit &&
        (!best || one.cost < best->cost || (one.cost == best->cost && one.bytes < best->bytes)))
      best = one;
    std::size_t block = 0;
    while (block < blocks.size() && ++option[block] == blocks[block].size()) option[block++] = 0;
    if (block == blocks.size()) return best;
  }
}

TEST(MemoryChoice, IsTheBestOfAllChoices) {
  std::mt19937 random(7);
  const auto below = [&](int bound) { return static_cast<int>(random() % unsigned(bound)); };
  int fitting = 0;
  for (int round = 0; round < 400; ++round) {
    Blocks blocks(static_cast<std::size_t>(1 + below(7)));
    std::int64_t all = 0;
    for (auto& options : blocks) {
      const int kept = 20 + below(80), inputs = below(20);
      options = {{.stays = kept},
                 {.stays = kept - below(20), .cost = double(1 + below(4))},
                 {.stays = inputs, .once = kept, .cost = double(5 + below(8))}};
      if (round % 2 == 0) options.front().once = below(120);
      all += kept;
    }
    const std::int64_t limit = 1 + below(static_cast<int>(all + 50));
    const auto wanted = by_trying_all(blocks, limit), got = cheapest_within(blocks, limit);
    ASSERT_EQ(got.has_value(), wanted.has_value()) << "round " << round;
    if (!got) continue;
    ++fitting;
    EXPECT_EQ(got->cost, wanted->cost) << "round " << round;
    EXPECT_EQ(got->bytes, wanted->bytes) << "round " << round;
    const MemoryChoice checked = evaluated(blocks, got->option);
    EXPECT_EQ(checked.bytes, got->bytes);
    EXPECT_EQ(checked.cost, got->cost);
    EXPECT_LE(got->bytes, limit);
  }
  EXPECT_GT(fitting, 200);
  EXPECT_LT(fitting, 400);
}

TEST(MemoryChoice, ComputesNoMoreAgainThanItMust) {
  const std::vector<MemoryOption> layer = {
      {.stays = 100}, {.stays = 90, .cost = 1}, {.stays = 10, .once = 100, .cost = 6}};
  const Blocks blocks(4, layer);
  EXPECT_THAT(cheapest_within(blocks, 400)->option, ElementsAre(0, 0, 0, 0));
  EXPECT_EQ(cheapest_within(blocks, 399)->cost, 1);
  EXPECT_EQ(cheapest_within(blocks, 360)->cost, 4);
  // A recomputed block needs room for all of itself: 10 + 3 x 100 + 100 saves nothing.
  EXPECT_EQ(cheapest_within(blocks, 359)->cost, 12);
  EXPECT_EQ(cheapest_within(blocks, 140)->cost, 24);
  EXPECT_EQ(cheapest_within(blocks, 139), std::nullopt);
}

// Sizes without a common divisor give too many sums. The choice keeps to the limit and is good.
TEST(MemoryChoice, KeepsToTheLimitWhereThereAreTooManySums) {
  std::mt19937_64 random(3);
  Blocks blocks(60);
  std::int64_t all = 0;
  double work = 0;
  for (auto& options : blocks) {
    const auto kept = static_cast<std::int64_t>(10'000'000 + random() % 1'000'000'000);
    const double again = double(kept) * (0.5 + double(random() % 1000) / 1000);
    options = {{.stays = kept}, {.stays = kept / 16, .cost = again}};
    all += kept;
    work += again;
  }
  const auto choice = cheapest_within(blocks, all / 2);
  ASSERT_TRUE(choice);
  EXPECT_LE(choice->bytes, all / 2);
  EXPECT_LT(choice->cost, 0.5 * work);
}

TEST(MemoryChoice, OfNothingIsNothing) {
  EXPECT_EQ(cheapest_within({}, 0)->bytes, 0);
  EXPECT_EQ(cheapest_within(Blocks{{{.stays = 5}}}, 4), std::nullopt);
}

// So many sums that cheap ones of a slice of bytes are left out. The last block fits only beside
// the dearest of all.
TEST(MemoryChoice, TheSmallestIsNeverLeftOut) {
  constexpr std::int64_t kLimit = (1 << 16) - 1;
  Blocks blocks;
  for (int i = 0; i < 16; ++i)
    blocks.push_back({{.stays = std::int64_t{1} << i}, {.cost = double(1 << i)}});
  blocks.push_back({{.stays = kLimit}});
  const auto got = cheapest_within(blocks, kLimit);
  ASSERT_TRUE(got.has_value());
  EXPECT_EQ(got->bytes, kLimit);
  EXPECT_EQ(got->cost, double(kLimit));
}

}  // namespace
}  // namespace trireme::plan
