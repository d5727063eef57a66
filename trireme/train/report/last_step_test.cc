#include "trireme/train/report/step_figures.h"

#include <gtest/gtest.h>

#include "trireme/testing/run_ranks.h"

namespace trireme::inline v0::train {
namespace {

using observe::StepFigures;

// Rank 0 has the figures of step 4 alone; ranks 2 and 3 have ended step 5.
TEST(LastStep, IsToldByARankThatEndedIt) {
  for (const bool lacks : {true, false}) {
    testing::run_ranks(4, [&](testing::RankContext& context) {
      comm::Communicator& world = *context.world;
      const int rank = world.rank();
      std::optional<StepFigures> own;
      if (rank != 1) own = {.step = rank == 0 ? 4 : 5, .loss = 1.5, .step_seconds = 0.25};
      const auto told = last_step(world, lacks, 5, own);
      ASSERT_EQ(told.has_value(), lacks && rank == 0) << rank;
      if (!told) return;
      EXPECT_EQ(told->step, 5);
      EXPECT_EQ(told->loss, 1.5);
      EXPECT_EQ(told->step_seconds, 0.25);
      EXPECT_EQ(told->items, "tokens");
    });
  }
}

TEST(LastStep, MayBeKnownToNobody) {
  testing::run_ranks(3, [](testing::RankContext& context) {
    EXPECT_FALSE(last_step(*context.world, true, 5, std::nullopt));
    const StepFigures before{.step = 4};
    EXPECT_FALSE(last_step(*context.world, true, 5, before));
  });
}

}  // namespace
}  // namespace trireme::inline v0::train
