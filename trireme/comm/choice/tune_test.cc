#include "trireme/comm/choice/tune.h"

#include <gtest/gtest.h>

#include "trireme/comm/rounds/registry.h"
#include "trireme/testing/run_ranks.h"

namespace trireme::inline v0::comm {
namespace {

using testing::RankContext;
using testing::run_ranks;

// Only messages advance the simulated clock, so the times are those of the simulated network.
TEST(Tune, MeasuresEveryAlgorithmAlikeOnAllRanks) {
  std::vector<std::string> tables(3);
  run_ranks(3, [&](RankContext& rank) {
    TuneOptions options;
    options.sizes = {8, 4096};
    options.budget = std::chrono::microseconds(200);
    int told = 0;
    options.progress = [&](std::string_view) { ++told; };
    const plan::Tuning tuning = tune(*rank.world, options);
    EXPECT_EQ(told > 0, rank.rank == 0);
    for (const AlgorithmEntry* entry : algorithms_of(OpKind::AllReduce)) {
      const auto seconds = tuning.seconds("all_reduce", entry->name, "sim", 3, 4096);
      ASSERT_TRUE(seconds.has_value()) << entry->name;
      EXPECT_GT(*seconds, 0);
    }
    EXPECT_GT(tuning.links.at("sim").alpha, 0);
    tables[rank.rank] = tuning.to_toml();
  });
  EXPECT_EQ(tables[1], tables[0]);
  EXPECT_EQ(tables[2], tables[0]);
}

TEST(Tune, AGroupOfOneHasNoLink) {
  run_ranks(1, [](RankContext& rank) {
    EXPECT_EQ(measure_link(*rank.world, Duration(1)).alpha, 0);
    EXPECT_FALSE(tune(*rank.world, {.sizes = {8}, .budget = Duration(1)}).measurements().empty());
  });
}

}  // namespace
}  // namespace trireme::inline v0::comm
