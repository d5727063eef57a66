#include "trireme/train/plan/auto_recompute.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trireme/memory/recompute.h"

namespace trireme::train {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

const models::BlockActivations kLayer{.kept = 100'000'000,
                                      .probabilities = 20'000'000,
                                      .inputs = 10'000'000,
                                      .forward_work = 20,
                                      .scores_work = 1};
const std::vector<models::BlockActivations> kBlocks = {
    {}, kLayer, kLayer, kLayer, kLayer, {.kept = 30'000'000, .forward_work = 10}};
const std::vector<std::string> kNames = {"embed",   "layer.0", "layer.1",
                                         "layer.2", "layer.3", "head"};

std::int64_t peak(const std::string& policy) {
  return memory::costs_of(kBlocks, memory::parse_recompute(policy, kBlocks.size())).peak;
}

TEST(AutoRecompute, TakesTheCheapestThatFits) {
  const auto again = [](std::int64_t room) {
    const AutoRecompute chosen = choose_recompute(kBlocks, kNames, room);
    EXPECT_LE(peak(chosen.policy), room);
    return memory::costs_of(kBlocks, memory::parse_recompute(chosen.policy)).share_again;
  };
  EXPECT_EQ(again(430'000'000), 0);
  EXPECT_EQ(choose_recompute(kBlocks, kNames, 430'000'000).policy, "none");
  EXPECT_DOUBLE_EQ(again(429'999'999), 1 / 270.);
  EXPECT_DOUBLE_EQ(again(350'000'000), 4 / 270.);
  // While a layer is recomputed, all its 100 MB are in memory.
  EXPECT_DOUBLE_EQ(again(349'999'999), 2 * 20 / 270.);
  EXPECT_DOUBLE_EQ(again(140'000'000), 4 * 20 / 270.);
}

TEST(AutoRecompute, TakesTheSmallestWhereNothingFits) {
  for (const std::int64_t room : {std::int64_t{100'000'000}, std::int64_t{0}, std::int64_t{-5}})
    EXPECT_EQ(peak(choose_recompute(kBlocks, kNames, room).policy), peak("full")) << room;
}

TEST(AutoRecompute, ShowsItsTable) {
  const AutoRecompute chosen = choose_recompute(kBlocks, kNames, 330'000'000);
  EXPECT_EQ(chosen.policy, "none*1,full*2,none*3");
  EXPECT_EQ(chosen.table,
            "  memory.recompute = \"auto\": the least time with at most 330 MB of activations a "
            "micro-batch\n"
            "    blocks                   again             keep          of  more time\n"
            "    embed                    none           0 bytes     0 bytes          -\n"
            "    layer.0 ... layer.1      full           20.0 MB      200 MB     14.8 %\n"
            "    layer.2 ... layer.3      none            200 MB      200 MB          -\n"
            "    head                     none           30.0 MB     30.0 MB          -\n"
            "    at most at a time                        320 MB      430 MB     14.8 %\n");
}

}  // namespace
}  // namespace trireme::train
