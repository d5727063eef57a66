// Options of a training in its plan: lanes, state in a file, compression.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trireme/plan/training_plan.h"

namespace trireme {
namespace {

using ::testing::HasSubstr;

plan::PlannedJob on_two_ranks() {
  return {.name = "tiny",
          .parameters = 1000,
          .batch = 8,
          .micro = 1,
          .tokens_per_sample = 64,
          .steps = 10,
          .activations_per_micro = 5000,
          .ranks = 2,
          .usable_cores = 2,
          .cores_reason = "2 of 2",
          .transport = "shm",
          .algorithm = "auto"};
}

// A rank that waits for others in the middle of a pass computes one micro-batch at a time.
TEST(PlanOfOptions, RanksOfAPipelineAndOfShardedGradientsHaveOneLane) {
  plan::PlannedJob staged = on_two_ranks(), sharded = on_two_ranks();
  staged.pipeline = 2;
  sharded.owners = 2;
  sharded.shards_gradients = true;
  for (plan::PlannedJob one : {staged, sharded}) {
    one.kernel_seconds = 1;
    const plan::TrainingPlan plan = plan::make_plan(one);
    one.lanes = 4;
    const plan::TrainingPlan asked = plan::make_plan(one);
    EXPECT_EQ(asked.lanes, 1);
    EXPECT_EQ(asked.memory.tensors(), plan.memory.tensors());
    EXPECT_EQ(asked.compute_seconds, plan.compute_seconds);
    EXPECT_THAT(plan::explain(asked), HasSubstr("in this layout a rank has one lane"));
    one.usable_cores = 4;
    EXPECT_THAT(plan::explain(plan::make_plan(one)), HasSubstr("free (more ranks would use them)"));
  }
  sharded.shards_gradients = false;  // ZeRO-1
  sharded.lanes = 4;
  EXPECT_EQ(plan::make_plan(sharded).lanes, 4);
}

// On the CPU, memory.offload puts moments and the masters of 16-bit weights into a file.
TEST(PlanOfOptions, StateInAFileIsNotInMemory) {
  plan::PlannedJob one = on_two_ranks();
  one.precision = "bf16";
  one.largest_blocks = 500;
  const plan::TrainingPlan kept = plan::make_plan(one);
  one.moments_on_host = one.optimizer_moments;
  one.weights_on_host = true;
  const plan::TrainingPlan plan = plan::make_plan(one);
  EXPECT_EQ(plan.memory.weights, 2 * 1000);
  EXPECT_EQ(plan.memory.optimizer, 0);
  EXPECT_EQ(plan.memory.on_host, (4 + 8) * 1000);
  EXPECT_EQ(plan.rank_bytes(), kept.rank_bytes() - 12'000);
  EXPECT_EQ(plan.host_total(), kept.host_total() - 12'000);
  EXPECT_THAT(plan::explain(plan), HasSubstr("optimizer 0 bytes (and 12.0 kB in a file)"));
}

TEST(PlanOfOptions, ACompressorsResidualIsAsLargeAsTheGradients) {
  plan::PlannedJob one = on_two_ranks();
  const plan::Memory none = plan::make_plan(one).memory;
  one.keeps_residual = true;
  const plan::Memory kept = plan::make_plan(one).memory;
  EXPECT_EQ(kept.gradients, none.gradients + 4 * 1000);
  EXPECT_EQ(kept.total(), none.total() + 4 * 1000);
  one.ranks = 1;  // sends nothing
  EXPECT_EQ(plan::make_plan(one).memory.gradients, 3 * 4 * 1000);
}

}  // namespace
}  // namespace trireme
