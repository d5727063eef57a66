// Compares the partition of a chain with every possible one, and checks its output.
#include "trireme/plan/partition/partition.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <random>

#include "trireme/base/error.h"

namespace trireme {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using namespace plan;

std::vector<BlockCost> chain(const std::vector<double>& seconds) {
  std::vector<BlockCost> blocks;
  for (double one : seconds) {
    blocks.push_back({.name = "b" + std::to_string(blocks.size()), .seconds = one});
  }
  return blocks;
}

std::vector<int> ends(const Partition& partition) {
  std::vector<int> found;
  for (const StageCost& stage : partition.stages) found.push_back(stage.end);
  return found;
}

std::string refusal(const std::vector<BlockCost>& blocks, const PartitionOptions& options) {
  try {
    partition_chain(blocks, options);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "nothing was thrown";
}

TEST(Partition, BalancesAHandExample) {
  // The sum is 9; only {4} {1 1 1} {2} and {4} {1 1} {1 2} have a slowest stage of 4.
  const Partition best = partition_chain(chain({4, 1, 1, 1, 2}), {.stages = 3});
  EXPECT_EQ(best.slowest(), 4);
  EXPECT_EQ(best.stages.front().end, 1);
  EXPECT_DOUBLE_EQ(best.imbalance(), 4 / 3.0 - 1);
  // Either of the two is accepted.
  EXPECT_THAT(ends(best), ::testing::AnyOf(std::vector<int>{1, 4, 5}, std::vector<int>{1, 3, 5}));
}

struct BestChain {
  double slowest = std::numeric_limits<double>::infinity();
  std::int64_t bytes = std::numeric_limits<std::int64_t>::max();
};

// Tries every way to cut: first for the least slowest time, then for the least traffic within it.
class Exhaustive {
 public:
  Exhaustive(const std::vector<BlockCost>& blocks, const PartitionOptions& options)
      : blocks_(blocks), options_(options) {}
  BestChain best() {
    visit(0, 0, 0, 0, false);
    const double bound = best_.slowest * (1 + options_.slack);
    bound_ = bound;
    visit(0, 0, 0, 0, true);
    return best_;
  }

 private:
  void visit(int stage, std::size_t first, double slowest, std::int64_t bytes, bool traffic) {
    if (stage == options_.stages) {
      if (first != blocks_.size()) return;
      if (!traffic) best_.slowest = std::min(best_.slowest, slowest);
      if (traffic && slowest <= bound_) best_.bytes = std::min(best_.bytes, bytes);
      return;
    }
    double seconds = 0;
    std::int64_t memory = 0;
    for (std::size_t end = first + 1; end <= blocks_.size(); ++end) {
      const BlockCost& block = blocks_[end - 1];
      seconds += block.seconds;
      const int live = options_.live ? options_.live(options_.stages, stage) : 1;
      memory += block.weight_bytes + live * block.activation_bytes;
      if (options_.memory_limit > 0 && memory > options_.memory_limit) return;
      visit(stage + 1, end, std::max(slowest, seconds),
            bytes + (end < blocks_.size() ? block.output_bytes : 0), traffic);
    }
  }

  const std::vector<BlockCost>& blocks_;
  const PartitionOptions& options_;
  BestChain best_;
  double bound_ = 0;
};

TEST(Partition, IsTheBestOfAllThereAre) {
  std::mt19937 random(4);
  int refused = 0;
  for (int round = 0; round < 600; ++round) {
    const std::size_t count = 1 + random() % 10;
    std::vector<BlockCost> blocks;
    for (std::size_t i = 0; i < count; ++i) {
      // Integers, so that sums are exact in any order. Zeros are blocks that cost nothing.
      blocks.push_back(
          {"b", static_cast<double>(random() % 6), static_cast<std::int64_t>(random() % 5),
           static_cast<std::int64_t>(random() % 5), static_cast<std::int64_t>(1 + random() % 9)});
    }
    PartitionOptions options{.stages = 1 + static_cast<int>(random() % count)};
    if (round % 2 == 1) options.live = [](int stages, int stage) { return stages - stage; };
    if (round % 3 == 1) options.memory_limit = 4 + static_cast<std::int64_t>(random() % 40);
    if (round % 5 == 1) options.slack = 0.5;
    SCOPED_TRACE("round " + std::to_string(round));
    const BestChain best = Exhaustive(blocks, options).best();
    if (best.slowest == std::numeric_limits<double>::infinity()) {
      EXPECT_THAT(refusal(blocks, options), ContainsRegex("(do|does) not fit into"));
      ++refused;
      continue;
    }
    const Partition found = partition_chain(blocks, options);
    EXPECT_LE(found.slowest(), best.slowest * (1 + options.slack));
    EXPECT_EQ(found.sent_bytes(), best.bytes);
    ASSERT_EQ(found.stages.size(), static_cast<std::size_t>(options.stages));
    int next = 0;
    for (const StageCost& stage : found.stages) {
      EXPECT_EQ(stage.first, next);
      EXPECT_GT(stage.end, stage.first);
      if (options.memory_limit > 0) {
        EXPECT_LE(stage.memory_bytes, options.memory_limit);
      }
      next = stage.end;
    }
    EXPECT_EQ(next, static_cast<int>(count));
  }
  EXPECT_GT(refused, 20);  // both ways are tested
  EXPECT_LT(refused, 200);
}

TEST(Partition, SaysWhatItDid) {
  std::vector<BlockCost> blocks = chain({0.002, 0.001, 0.001});
  blocks[0].name = "embedding";
  blocks[0].output_bytes = 1'500'000;
  blocks[2].weight_bytes = 20'000;
  const std::string text = text_of(partition_chain(blocks, {.stages = 2}), blocks);
  EXPECT_EQ(text,
            "stage  blocks                                time      memory       sends\n"
            "0      embedding                          2.00 ms     0 bytes      1.5 MB\n"
            "1      b1 to b2                           2.00 ms     20.0 kB            \n"
            "imbalance 0.0 %: the slowest stage takes 2.00 ms, the mean is 2.00 ms\n");
}

TEST(Partition, MoreStagesThanBlocksIsRefusedWithTheArithmetic) {
  EXPECT_THAT(refusal(chain({1, 1, 1}), {.stages = 4}), HasSubstr("4 stages of 3 blocks"));
  EXPECT_THAT(refusal(chain({1}), {.stages = 0}), HasSubstr("0 stages of 1 blocks"));
  EXPECT_THAT(refusal(chain({1, -1}), {.stages = 1}), HasSubstr("negative or not finite"));
}

TEST(Partition, TooLittleMemoryIsRefusedWithWhatWouldFit) {
  std::vector<BlockCost> blocks = chain({1, 1, 1, 1});
  for (BlockCost& block : blocks) block.weight_bytes = 3'000'000;
  EXPECT_THAT(refusal(blocks, {.stages = 2, .memory_limit = 4'000'000}),
              AllOf(HasSubstr("2 stages do not fit into 4.0 MB each"), HasSubstr("b0 to b1"),
                    HasSubstr("4 stages fit.")));
  EXPECT_THAT(refusal(blocks, {.stages = 4, .memory_limit = 2'000'000}),
              AllOf(HasSubstr("No number of stages fits"), HasSubstr("parallel.tensor")));
}

// The advice on long chains does not take longer than the partition itself.
TEST(Partition, SaysHowManyStagesOfALongChainFit) {
  std::vector<BlockCost> blocks = chain(std::vector<double>(400, 1));
  for (BlockCost& block : blocks) block.weight_bytes = block.activation_bytes = 10;
  EXPECT_THAT(refusal(blocks, {.stages = 2, .memory_limit = 20}), HasSubstr("400 stages fit."));
  EXPECT_THAT(refusal(blocks, {.stages = 2, .memory_limit = 45}), HasSubstr("200 stages fit."));
  EXPECT_THAT(refusal(blocks, {.stages = 2, .memory_limit = 19}),
              HasSubstr("No number of stages fits"));
}

// The smallest number of stages that the advice names is the smallest that is not refused.
TEST(Partition, NamesTheFewestStagesThatFit) {
  std::mt19937 random(5);
  for (int round = 0; round < 200; ++round) {
    std::vector<BlockCost> blocks = chain(std::vector<double>(2 + random() % 8, 1));
    for (BlockCost& block : blocks) {
      block.weight_bytes = static_cast<std::int64_t>(random() % 5);
      block.activation_bytes = static_cast<std::int64_t>(random() % 5);
    }
    PartitionOptions options{.memory_limit = 6 + static_cast<std::int64_t>(random() % 20)};
    if (round % 2 == 1) options.live = [](int stages, int stage) { return stages - stage; };
    const std::string first = refusal(blocks, options);
    if (first.find("not fit") == std::string::npos) continue;
    std::string advice = "No number of stages fits";
    for (int stages = static_cast<int>(blocks.size()); stages > 1; --stages) {
      options.stages = stages;
      if (refusal(blocks, options).find("not fit") == std::string::npos)
        advice = std::to_string(stages) + " stages fit.";
    }
    EXPECT_THAT(first, HasSubstr(advice)) << "round " << round;
  }
}

// 1F1B keeps p - r micro-batches on rank r, so with little memory the first stages are shorter.
TEST(Partition, LiveActivationsMoveTheCut) {
  std::vector<BlockCost> blocks = chain({1, 1, 1, 1, 1, 1});
  for (BlockCost& block : blocks) block.activation_bytes = 10;
  const auto live = [](int stages, int stage) { return stages - stage; };
  EXPECT_THAT(ends(partition_chain(blocks, {.stages = 2, .live = live})),
              ::testing::ElementsAre(3, 6));
  EXPECT_THAT(ends(partition_chain(blocks, {.stages = 2, .memory_limit = 40, .live = live})),
              ::testing::ElementsAre(2, 6));
}

}  // namespace
}  // namespace trireme
