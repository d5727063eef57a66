#include "trireme/plan/state_costs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trireme/plan/training_plan.h"

namespace trireme {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

// 1000 parameters with two moments, elastic, with a copy on one other rank.
plan::PlannedJob kept_job(int ranks, const std::string& sync = "plain") {
  plan::PlannedJob job{.name = "tiny",
                       .parameters = 1000,
                       .batch = 24,
                       .micro = 1,
                       .tokens_per_sample = 64,
                       .steps = 10,
                       .sync = sync,
                       .keeping = {.elastic = true,
                                   .least_ranks = 1,
                                   .copies = 1,
                                   .checkpoints = 500,
                                   .saves = true},
                       .ranks = ranks,
                       .usable_cores = 2,
                       .cores_reason = "2 of 2",
                       .transport = "tcp",
                       .algorithm = "auto"};
  job.ranks_here = ranks;
  if (sync == "plain") return job;
  job.owners = ranks;
  job.sharding = sync;
  job.shards_gradients = sync != "zero1";
  job.shards_weights = sync == "zero3";
  return job;
}

TEST(StateCosts, PlainRanksHaveNothingThatNoOtherHas) {
  const plan::TrainingPlan plan = plan::make_plan(kept_job(4));
  EXPECT_EQ(plan.state_costs.state, 12 * 1000);
  EXPECT_EQ(plan.state_costs.sole, 0);
  EXPECT_EQ(plan.memory.copies, 0);
  EXPECT_EQ(plan.memory.snapshot, 12 * 1000);
  // Rank 0 writes all.
  EXPECT_EQ(plan::snapshots_on_host(plan), 12 * 1000);
  EXPECT_THAT(plan::explain(plan),
              AllOf(HasSubstr("  snapshot 12.0 kB"), Not(HasSubstr("  copies")),
                    HasSubstr("nothing is repeated")));
}

TEST(StateCosts, Zero1CopiesItsMoments) {
  const plan::TrainingPlan plan = plan::make_plan(kept_job(4, "zero1"));
  // Whole weights, and a quarter of 8 bytes a parameter.
  EXPECT_EQ(plan.state_costs.state, 4 * 1000 + 2 * 1000);
  EXPECT_EQ(plan.state_costs.sole, 2 * 1000);
  EXPECT_EQ(plan.state_costs.sent, 2 * 1000);
  EXPECT_EQ(plan.memory.copies, 3 * (6000 + 2000));
  EXPECT_EQ(plan.memory.snapshot, 6000);
  EXPECT_EQ(plan::snapshots_on_host(plan), 4000 + 4 * 2000);
  EXPECT_GT(plan.state_costs.refresh.seconds, 0);
  EXPECT_THAT(
      plan::explain(plan),
      AllOf(HasSubstr("  copies   24.0 kB a rank, on the host: of 3 steps, its own 6.0 kB and "
                      "2.0 kB for each of 1 other rank\n"),
            HasSubstr("2.0 kB sent every step"), HasSubstr(" + snapshot 6.0 kB + copies 24.0 kB"),
            HasSubstr("  loss     of a rank: the others go on; its part of the state comes "
                      "from the memory of 1 other rank, and at most 1 step is repeated")));
}

TEST(StateCosts, Zero3In16BitsCopiesMastersToTwoRanksEveryFiveSteps) {
  plan::PlannedJob job = kept_job(4, "zero3");
  job.precision = "bf16";
  job.keeping.copies = 2;
  const plan::TrainingPlan often = plan::make_plan(job);
  job.keeping.copies_every = 5;
  const plan::TrainingPlan plan = plan::make_plan(job);
  EXPECT_EQ(plan.state_costs.state, 3 * 1000);
  EXPECT_EQ(plan.state_costs.sole, 3 * 1000);
  EXPECT_EQ(plan.state_costs.sent, 6 * 1000);
  EXPECT_EQ(often.memory.copies, 3 * (3000 + 6000));
  EXPECT_EQ(plan.memory.copies, 2 * (3000 + 6000));
  EXPECT_DOUBLE_EQ(plan.state_costs.refresh.seconds, often.state_costs.refresh.seconds / 5);
  EXPECT_THAT(plan::explain(plan),
              AllOf(HasSubstr("sent every 5 steps"), HasSubstr("at most 5 steps are repeated")));
  // Two other ranks are all that there are.
  job.keeping.copies = 9;
  EXPECT_EQ(plan::make_plan(job).state_costs.holders, 3);
}

TEST(StateCosts, ARankHasWhatItHasNotSentOfItsGradients) {
  plan::PlannedJob job = kept_job(4);
  job.keeps_residual = true;
  const plan::TrainingPlan plan = plan::make_plan(job);
  EXPECT_EQ(plan.state_costs.state, 16 * 1000);
  EXPECT_EQ(plan.state_costs.sole, 4 * 1000);
  EXPECT_EQ(plan.memory.copies, 3 * (16'000 + 4000));
  EXPECT_EQ(plan.memory.snapshot, 16'000);
  EXPECT_EQ(plan::snapshots_on_host(plan), 12'000 + 4 * 4000);
  EXPECT_THAT(plan::after_a_loss(plan), HasSubstr("comes from the memory of 1 other rank"));
  job.keeping.copies = 0;
  EXPECT_THAT(
      plan::after_a_loss(plan::make_plan(job)),
      AllOf(HasSubstr("the others go on"), HasSubstr("may be lost (checkpoint.memory = 1")));
}

// Two groups of two owners: each part is on two ranks, which may be a step apart. Each keeps its own
// part of older steps, and sends nothing.
TEST(StateCosts, ReplicasOfPartsAreKeptButNotSent) {
  plan::PlannedJob job = kept_job(4, "zero3");
  job.owners = 2;
  const plan::TrainingPlan plan = plan::make_plan(job);
  EXPECT_EQ(plan.state_costs.state, 12 * 1000 / 2);
  EXPECT_EQ(plan.state_costs.sole, 0);
  EXPECT_EQ(plan.state_costs.sent, 0);
  EXPECT_EQ(plan.memory.copies, 3 * 12 * 1000 / 2);
  EXPECT_THAT(plan::explain(plan),
              AllOf(HasSubstr("of 3 steps, its own 6.0 kB; another rank has the same\n"),
                    HasSubstr("they have all that it had, and at most 1 step is repeated")));
}

TEST(StateCosts, RanksThatShareSequencesHaveTheSame) {
  plan::PlannedJob staged = kept_job(4), sharded = kept_job(4, "zero3");
  staged.context = sharded.context = 2;
  staged.pipeline = sharded.owners = 2;
  staged.blocks = 4;
  for (const plan::PlannedJob& job : {staged, sharded}) {
    const plan::TrainingPlan plan = plan::make_plan(job);
    EXPECT_EQ(plan.state_costs.state, 12 * 1000 / 2);
    EXPECT_EQ(plan.state_costs.sole, 0);
    EXPECT_EQ(plan::snapshots_on_host(plan), 12 * 1000);
    EXPECT_THAT(plan::after_a_loss(plan), HasSubstr("they have all that it had"));
  }
}

// 600 of 1000 parameters belong to experts.
TEST(StateCosts, RanksThatShareExpertsHaveTheSameOfAllElse) {
  plan::PlannedJob job = kept_job(2);
  job.expert = 2;
  job.expert_parameters = 600;
  const plan::TrainingPlan plan = plan::make_plan(job);
  EXPECT_EQ(plan.state_costs.state, 12 * 700);
  EXPECT_EQ(plan.state_costs.sole, 12 * 300);
}

TEST(StateCosts, AStageWithoutAReplicaIsOnOneRank) {
  plan::PlannedJob job = kept_job(2);
  job.pipeline = 2;
  job.blocks = 4;
  job.keeping.multiple = 2;
  const plan::TrainingPlan alone = plan::make_plan(job);
  EXPECT_EQ(alone.state_costs.sole, 12 * 1000 / 2);
  EXPECT_EQ(plan::snapshots_on_host(alone), 12 * 1000);
  EXPECT_THAT(plan::after_a_loss(alone), HasSubstr("the others wait for the one that is started"));
  job.ranks = job.ranks_here = 4;
  const plan::TrainingPlan two = plan::make_plan(job);
  EXPECT_EQ(two.state_costs.sole, 0);
  EXPECT_EQ(two.memory.copies, 3 * 12 * 1000 / 2);
  EXPECT_THAT(plan::after_a_loss(two),
              AllOf(HasSubstr("the others go on"), HasSubstr("at most 1 step is repeated")));
  job.keeping.copies = 0;
  const plan::TrainingPlan without = plan::make_plan(job);
  EXPECT_EQ(without.memory.copies, 0);
  EXPECT_THAT(plan::after_a_loss(without),
              AllOf(HasSubstr("the others go on"), HasSubstr("nothing is repeated; only if"),
                    HasSubstr("checkpoint.memory = 1")));
}

TEST(StateCosts, WithoutRestartsALossLeavesTooFewRanks) {
  plan::PlannedJob job = kept_job(4, "zero3");
  job.keeping.least_ranks = 4;
  EXPECT_THAT(plan::after_a_loss(plan::make_plan(job)), HasSubstr("the one that is started again"));
  job.keeping.restarts = false;
  EXPECT_THAT(plan::after_a_loss(plan::make_plan(job)),
              AllOf(HasSubstr("the job ends"), HasSubstr("goes back to the newest checkpoint")));
  job.keeping.least_ranks = 1;
  EXPECT_THAT(plan::after_a_loss(plan::make_plan(job)), HasSubstr("the others go on"));
}

TEST(StateCosts, WithoutCopiesALossGoesBackToTheCheckpoint) {
  plan::PlannedJob job = kept_job(4, "zero3");
  job.keeping.copies = 0;
  EXPECT_EQ(plan::make_plan(job).memory.copies, 0);
  EXPECT_THAT(plan::after_a_loss(plan::make_plan(job)),
              AllOf(HasSubstr("goes back to the newest checkpoint and repeats at most 500 steps"),
                    HasSubstr("checkpoint.memory = 1")));
  job.keeping.checkpoints = 0;
  EXPECT_THAT(plan::after_a_loss(plan::make_plan(job)), HasSubstr("begins anew"));
  job.transport = "mpi";
  EXPECT_THAT(plan::after_a_loss(plan::make_plan(job)), HasSubstr("an MPI world cannot shrink"));
  job.keeping.alone = true;
  EXPECT_THAT(plan::after_a_loss(plan::make_plan(job)), HasSubstr("weights that the servers have"));
  job.keeping.restarts = false;
  EXPECT_THAT(plan::after_a_loss(plan::make_plan(job)),
              AllOf(HasSubstr("go on without it"), Not(HasSubstr("started again"))));
  job.keeping.alone = job.keeping.elastic = false;
  EXPECT_EQ(plan::after_a_loss(plan::make_plan(job)), "");
  EXPECT_THAT(plan::explain(plan::make_plan(job)), Not(HasSubstr("  loss ")));
}

// They write at once, without a copy, and one process has all of them.
TEST(StateCosts, SimulatedRanksHaveNoSnapshot) {
  plan::PlannedJob job = kept_job(4, "zero1");
  job.simulated = true;
  EXPECT_EQ(plan::make_plan(job).memory.snapshot, 0);
}

// Rank 0 gets it to write it.
TEST(StateCosts, ASnapshotHasTheStateThatServersKeep) {
  plan::PlannedJob job = kept_job(4);
  job.optimizer_moments = 0;
  job.moments_on_servers = 2;
  EXPECT_EQ(plan::make_plan(job).state_costs.state, 4 * 1000);
  EXPECT_EQ(plan::make_plan(job).state_costs.snapshot, 12 * 1000);
}

TEST(StateCosts, OfADeviceAreOnTheHost) {
  plan::PlannedJob job = kept_job(4, "zero1");
  const std::int64_t tensors = plan::make_plan(job).memory.tensors();
  job.device = "cuda";
  const plan::TrainingPlan plan = plan::make_plan(job);
  EXPECT_EQ(plan.rank_bytes(), tensors);
  plan::PlannedJob without = job;
  without.keeping = {};
  EXPECT_EQ(plan.host_total() - plan::make_plan(without).host_total(),
            4 * 24'000 + 4000 + 4 * 2000);
}

}  // namespace
}  // namespace trireme
