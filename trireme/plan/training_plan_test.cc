#include "trireme/plan/training_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trireme/base/error.h"

namespace trireme {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

plan::PlannedJob job(std::int64_t batch, std::int64_t micro, int ranks) {
  return {.name = "tiny",
          .parameters = 1000,
          .batch = batch,
          .micro = micro,
          .tokens_per_sample = 64,
          .steps = 10,
          .activations_per_micro = 5000,
          .program = 70,
          .text = 30,
          .ranks = ranks,
          .usable_cores = 2,
          .cores_reason = "2 of 2",
          .transport = "shm",
          .algorithm = "auto"};
}

std::string refusal(const plan::PlannedJob& job) {
  try {
    plan::make_plan(job);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "nothing was thrown";
}

TEST(TrainingPlan, ShowsTheArithmeticOfABadMicroBatch) {
  EXPECT_THAT(refusal(job(8, 3, 1)), HasSubstr("8 = 2 x 3 + 2"));
}

TEST(TrainingPlan, APipelineNeedsABlockForEachStage) {
  plan::PlannedJob one = job(8, 1, 4);
  one.pipeline = 4;
  one.blocks = 4;
  EXPECT_EQ(plan::make_plan(one).stages, 4);
  one.blocks = 3;
  EXPECT_THAT(refusal(one), HasSubstr("4 pipeline stages are more than the model's 3 blocks"));
  one.schedule = "interleaved-1f1b";
  one.blocks = 7;
  EXPECT_THAT(refusal(one), HasSubstr("8 pipeline stages are more than the model's 7 blocks"));
}

TEST(TrainingPlan, ShardedMemoryFollowsNumerics) {
  // bf16 on 4 ranks, M = 8: a = 1 for 2 micro-batches per rank, A = 3 for all 8.
  plan::PlannedJob one = job(8, 1, 4);
  one.precision = "bf16";
  one.owners = 4;
  one.largest_blocks = 300;
  const auto state = [&](bool gradients, bool weights) {
    one.shards_gradients = gradients;
    one.shards_weights = weights;
    const plan::Memory memory = plan::make_plan(one).memory;
    return memory.weights + memory.gradients + memory.optimizer;
  };
  EXPECT_EQ(state(false, false), 1000 * (2 + 4) + 12000 / 4);
  EXPECT_EQ(state(true, false), 1000 * 2 + (12000 + 12000) / 4);
  EXPECT_EQ(state(true, true), (14000 + 12000) / 4);
  EXPECT_GE(plan::make_plan(one).memory.moving, 300 * 2);
  const std::int64_t in_bf16 = plan::make_plan(one).memory.total();
  one.precision = "fp16";
  EXPECT_EQ(plan::make_plan(one).memory.total(), in_bf16);
  one.sharding = "ZeRO-3";
  EXPECT_THAT(plan::explain(plan::make_plan(one)),
              HasSubstr("ZeRO-3 (all state over 4 ranks, two blocks whole)"));
  // Two groups of two ranks with 4 micro-batches each: A = 2.
  one.owners = 2;
  EXPECT_EQ(state(true, true), (14000 + 8000) / 2);
}

// Stages are divided among the pipeline's ranks, and a stage's state among the ranks that hold it;
// two blocks are whole, whatever the number of stages.
TEST(TrainingPlan, ShardedMemoryOfAPipelineFollowsNumerics) {
  plan::PlannedJob one = job(8, 1, 4);
  one.precision = "bf16";
  one.pipeline = 2;
  one.owners = 2;
  one.shards_gradients = one.shards_weights = true;
  one.sharding = "ZeRO-3";
  one.largest_blocks = 300;
  one.bucket_bytes = 40;
  const plan::Memory memory = plan::make_plan(one).memory;
  EXPECT_EQ(memory.weights + memory.gradients + memory.optimizer, (14000 + 12000) / 4);
  EXPECT_EQ(memory.moving, 4 * 40 * 2 + 300 * 2);
  one.schedule = "interleaved-1f1b";
  const plan::Memory of_two = plan::make_plan(one).memory;
  EXPECT_EQ(of_two.weights + of_two.gradients + of_two.optimizer, (14000 + 12000) / 4);
  EXPECT_EQ(of_two.moving, 2 * 4 * 40 * 2 + 300 * 2);
  EXPECT_THAT(plan::explain(plan::make_plan(one)),
              HasSubstr("x 2, ZeRO-3 (all state over 2 ranks"));
}

TEST(TrainingPlan, AnExchangeIsDividedAmongItsSteps) {
  plan::PlannedJob one = job(8, 1, 4);
  const double each = plan::make_plan(one).communication.seconds;
  EXPECT_GT(each, 0);
  one.sync = "local_sgd";
  one.exchange = {
      .about = "local SGD (averaged)", .every = 16, .after = 100, .bits = "the number of ranks"};
  const plan::TrainingPlan plan = plan::make_plan(one);
  EXPECT_DOUBLE_EQ(plan.communication.seconds, each / 16);
  EXPECT_THAT(plan::explain(plan),
              AllOf(HasSubstr("layout   local SGD (averaged): 8 micro-batches"),
                    HasSubstr("one every 16 steps"), HasSubstr("first 100 steps reduce gradients"),
                    HasSubstr("depend on the number of ranks")));
  one.exchange.kept = 2;
  EXPECT_EQ(plan::make_plan(one).memory.optimizer, plan.memory.optimizer + 2 * 4 * 1000);
}

TEST(TrainingPlan, GossipIsMessagesAndNoReduction) {
  plan::PlannedJob one = job(8, 1, 8);
  one.sync = "gossip";
  one.exchange = {.about = "gossip", .every = 1, .messages = 1, .graph = "one_peer of 8 ranks"};
  const plan::TrainingPlan peer = plan::make_plan(one);
  one.exchange.messages = 3;
  const plan::TrainingPlan three = plan::make_plan(one);
  EXPECT_GT(peer.communication.seconds, 0);
  EXPECT_DOUBLE_EQ(three.communication.seconds, 3 * peer.communication.seconds);
  EXPECT_THAT(plan::explain(three),
              AllOf(HasSubstr("of messages an exchange"), HasSubstr("(one_peer of 8 ranks)"),
                    HasSubstr("shm transport\n")));
}

TEST(TrainingPlan, ServersAreNamedAndCostTwoMessagesAStep) {
  plan::PlannedJob one = job(8, 1, 1);
  one.sync = "server";
  one.exchange = {
      .about = "1 parameter server, synchronous", .every = 1, .messages = 2, .beside = "1 process"};
  const plan::TrainingPlan plan = plan::make_plan(one);
  EXPECT_THAT(plan::explain(plan),
              AllOf(HasSubstr("layout   1 parameter server, synchronous"),
                    HasSubstr("servers  1 process"), Not(HasSubstr("ends the promise"))));
}

TEST(TrainingPlan, ShowsTheArithmeticOfTooManyRanks) {
  EXPECT_THAT(refusal(job(8, 4, 3)), AllOf(HasSubstr("8 / batch.micro 4 = 2"), HasSubstr("3 ranks"),
                                           HasSubstr("--ranks 2")));
}

TEST(TrainingPlan, MemoryFollowsNumerics) {
  // bf16, m = 4 micro-batches per rank: a = 2, 14 + 4a bytes per parameter.
  plan::PlannedJob bf16 = job(8, 1, 2);
  bf16.precision = "bf16";
  const plan::TrainingPlan plan = plan::make_plan(bf16);
  EXPECT_EQ(plan.open_sums, 2);
  EXPECT_EQ(plan.memory.weights + plan.memory.gradients + plan.memory.optimizer, 1000 * (14 + 8));
  EXPECT_EQ(plan.memory.total() - plan.memory.runtime(), 22000 + 5000 + plan.memory.temporaries);
  plan::PlannedJob fp16 = bf16;
  fp16.precision = "fp16";
  EXPECT_EQ(plan::make_plan(fp16).memory.total(), plan.memory.total());
  // fp32 has no 16-bit copy: 4 + 4a + 8 bytes; fp64 doubles everything.
  const auto of_model = [](const plan::PlannedJob& one) {
    const plan::Memory memory = plan::make_plan(one).memory;
    return memory.weights + memory.gradients + memory.optimizer;
  };
  EXPECT_EQ(of_model(job(2, 1, 2)), 16000);
  plan::PlannedJob fp64 = job(2, 1, 2);
  fp64.precision = "fp64";
  EXPECT_EQ(of_model(fp64), 32000);
}

TEST(TrainingPlan, TensorParallelRanksShareTheModel) {
  const auto on = [](int ranks, int pipeline, int tensor) {
    plan::PlannedJob one = job(8, 1, ranks);
    one.pipeline = pipeline;
    one.tensor = tensor;
    return one;
  };
  const plan::TrainingPlan plan = plan::make_plan(on(8, 2, 2));
  EXPECT_EQ(plan.memory.weights, 1000 / 4 * 4);
  EXPECT_EQ(plan.micro_per_rank, 4);
  EXPECT_THAT(plan::explain(plan),
              AllOf(HasSubstr("pipeline of 2 stages on 2 ranks"),
                    HasSubstr(" x 2 tensor-parallel ranks x 2, plain data parallel"),
                    HasSubstr("4 in each copy of the model"), HasSubstr("within a tolerance")));
  plan::PlannedJob lanes = on(2, 1, 2);
  lanes.lanes = 4;
  EXPECT_EQ(plan::make_plan(lanes).lanes, 1);
  EXPECT_THAT(refusal(on(6, 2, 2)),
              AllOf(HasSubstr("2 x 2 = 4 does not divide the ranks: 6 = 1 x 4 + 2")));
  EXPECT_THAT(refusal(on(9, 1, 3)), HasSubstr("nothing was thrown"));
  EXPECT_THAT(refusal(on(32, 1, 2)), HasSubstr("16 copies of the model are more than"));
}

TEST(TrainingPlan, ASumOfALayerIsOneCallWhateverTheBuckets) {
  plan::PlannedJob one = job(8, 1, 2);
  one.tensor = 2;
  one.layer_sums = 10;
  one.layer_sum_bytes = 64 << 20;
  one.bucket_bytes = 1 << 20;
  plan::PlannedJob whole = one;
  whole.bucket_bytes = one.layer_sum_bytes;
  EXPECT_GT(plan::make_plan(one).layers.seconds, 0);
  EXPECT_EQ(plan::make_plan(one).layers.seconds, plan::make_plan(whole).layers.seconds);
}

// 600 of 1000 parameters belong to four experts, which two ranks share.
TEST(TrainingPlan, ExpertParallelRanksShareExpertsAndSequences) {
  const auto on = [](int ranks, int expert, std::int64_t micro = 4) {
    plan::PlannedJob one = job(32, micro, ranks);
    one.expert = expert;
    one.expert_parameters = 600;
    return one;
  };
  const plan::TrainingPlan plan = plan::make_plan(on(4, 2));
  EXPECT_EQ(plan.memory.weights, (400 + 300) * 4);
  EXPECT_EQ(plan.memory.optimizer, (400 + 300) * 8);
  EXPECT_EQ(plan.micro_per_rank, 4);  // two groups
  EXPECT_THAT(plan::explain(plan),
              AllOf(HasSubstr("2 expert-parallel ranks x 2, plain data parallel"),
                    HasSubstr("parallel.expert = 2 adds in another order")));
  plan::PlannedJob mesh = on(16, 2);
  mesh.pipeline = mesh.tensor = 2;
  EXPECT_EQ(plan::make_plan(mesh).memory.weights, 700 / 4 * 4);
  plan::PlannedJob sharded = on(4, 2);
  sharded.owners = 2;
  EXPECT_EQ(plan::make_plan(sharded).memory.optimizer, 350 * 8);

  EXPECT_THAT(refusal(on(5, 2)), HasSubstr("parallel.expert = 2 does not divide data x shard: 5 = "
                                           "2 x 2 + 1"));
  plan::PlannedJob odd = on(6, 2);
  odd.pipeline = 2;
  EXPECT_THAT(refusal(odd), HasSubstr("6 ranks / 2 = 3, and 3 = 1 x 2 + 1"));
}

TEST(TrainingPlan, MemoryHasNamedPartsBeyondTheModel) {
  const plan::Memory two = plan::make_plan(job(8, 1, 2)).memory;
  EXPECT_EQ(two.program, 70);
  EXPECT_EQ(two.text, 30);
  EXPECT_GT(two.kernels, 0);
  // Over shared memory, peers' gradients are read in place: each of two ranks reads half of them.
  plan::PlannedJob tcp = job(8, 1, 2);
  tcp.transport = "tcp";
  EXPECT_EQ(two.group - plan::make_plan(tcp).memory.group, two.gradients / 2);
  EXPECT_EQ(plan::make_plan(job(8, 1, 1)).memory.group, 0);
  const std::string text = plan::explain(plan::make_plan(job(8, 1, 2)));
  for (const char* part : {"weights", "gradients", "optimizer", "activations", "temporaries",
                           "program and LibTorch", "kernels", "the group", "text"})
    EXPECT_THAT(text, HasSubstr(std::string(part) + " "));
}

TEST(TrainingPlan, LanesTakeCoresActivationsAndGradients) {
  plan::PlannedJob lanes = job(8, 2, 1);
  lanes.lanes = 2;
  const plan::TrainingPlan two = plan::make_plan(lanes), one = plan::make_plan(job(8, 2, 1));
  EXPECT_EQ(two.memory.activations, 2 * one.memory.activations);
  EXPECT_EQ(two.memory.temporaries, 2 * one.memory.temporaries + 2 * 4 * 1000);
  EXPECT_EQ(two.memory.gradients, one.memory.gradients);
  EXPECT_THAT(plan::explain(two), AllOf(HasSubstr("2 cores for 1 rank x 2 lanes x 1 thread"),
                                        Not(HasSubstr("stay free"))));
  lanes.lanes = 8;
  EXPECT_EQ(plan::make_plan(lanes).lanes, 4);
  EXPECT_THAT(plan::explain(plan::make_plan(lanes)), HasSubstr("4 of 8 lanes have a micro-batch"));
}

TEST(TrainingPlan, LanesOfADeviceTakeItsTimeInTurn) {
  plan::PlannedJob lanes = job(8, 2, 1);
  lanes.device = "cuda";
  lanes.kernel_seconds = 1;
  EXPECT_DOUBLE_EQ(plan::make_plan(lanes).compute_seconds, 4);
  lanes.lanes = 2;
  EXPECT_DOUBLE_EQ(plan::make_plan(lanes).compute_seconds, 4);
}

TEST(TrainingPlan, AGraphKeepsOneMicroBatchsGradients) {
  plan::PlannedJob recorded = job(8, 2, 1);
  recorded.graphs = true;
  EXPECT_EQ(plan::make_plan(recorded).memory.temporaries,
            plan::make_plan(job(8, 2, 1)).memory.temporaries + 4 * 1000);
}

TEST(TrainingPlan, CommunicationIsTheTunersWhereItMeasured) {
  plan::PlannedJob two = job(8, 1, 2);
  two.bucket_bytes = 1000;  // four buckets of 1,000 parameters' gradients
  EXPECT_THAT(plan::explain(plan::make_plan(two)), HasSubstr("typical of shm; not measured here"));
  two.tuning_path = "/home/me/tuning.toml";
  two.tuning.emplace();
  two.tuning->machine = "a test";
  two.tuning->add({"all_reduce", "direct", "shm", 2, 1000, 0.25});
  const plan::TrainingPlan plan = plan::make_plan(two);
  EXPECT_DOUBLE_EQ(plan.communication.seconds, 1);
  EXPECT_THAT(plan::explain(plan),
              AllOf(HasSubstr("1 s of all-reduce a step"),
                    HasSubstr("direct as measured, /home/me/tuning.toml (a test)")));
  two.compression = "powersgd:4";
  EXPECT_THAT(plan::explain(plan::make_plan(two)), HasSubstr("and powersgd:4 saves"));
  EXPECT_THAT(plan::explain(plan::make_plan(job(8, 1, 1))), Not(HasSubstr("all-reduce a step")));
}

// Kernels in rounds of lanes, on the available cores, then the update and communication.
TEST(TrainingPlan, TheTimeOfAStepIsKnownWhereThatOfItsKernelsIs) {
  plan::PlannedJob one = job(8, 2, 1);
  EXPECT_EQ(plan::make_plan(one).step_seconds(), 0);
  EXPECT_THAT(plan::explain(plan::make_plan(one)), Not(HasSubstr("  time ")));
  one.kernel_seconds = 3;
  EXPECT_DOUBLE_EQ(plan::make_plan(one).step_seconds(), 4 * 3);
  one.share_again = 0.25;
  EXPECT_DOUBLE_EQ(plan::make_plan(one).step_seconds(), 4 * 3 * 1.25);
  one.lanes = 3;
  EXPECT_DOUBLE_EQ(plan::make_plan(one).step_seconds(), 2 * 3 * 1.25 * 3 / 2) << "on two cores";
  one.lanes = 1;
  one.ranks = 2;
  const plan::TrainingPlan two = plan::make_plan(one);
  EXPECT_DOUBLE_EQ(two.compute_seconds, 2 * 3 * 1.25);
  EXPECT_DOUBLE_EQ(two.step_seconds(), two.compute_seconds + two.communication.seconds);
  one.pipeline = 2;
  const plan::TrainingPlan pipeline = plan::make_plan(one);
  EXPECT_NEAR(pipeline.compute_seconds * (1 - pipeline.bubble), 2 * 3 * 1.25, 1e-9);
}

TEST(TrainingPlan, TheUpdateMovesGradientsWeightsAndMoments) {
  plan::PlannedJob one = job(8, 2, 1);
  one.parameters = 1000;
  one.kernel_seconds = 0.5;
  one.memory_rate = 1e4;
  one.speed_source = "a test";
  // Four micro-batches of 12 bytes a parameter; AdamW with two moments moves 32.
  EXPECT_DOUBLE_EQ(plan::make_plan(one).update_seconds, 0.1 * (4 * 12 + 32));
  EXPECT_THAT(plan::explain(plan::make_plan(one)),
              HasSubstr("  time     10 s a step, predicted: forward and backward 2 s + gradients "
                        "and update 8 s; "));
  one.ranks = 2;
  EXPECT_DOUBLE_EQ(plan::make_plan(one).update_seconds, 0.1 * (2 * 12 + 32));
  EXPECT_THAT(plan::explain(plan::make_plan(one)),
              AllOf(HasSubstr(" + communication "), HasSubstr("           (a test)\n")));
  one.owners = 2;
  EXPECT_DOUBLE_EQ(plan::make_plan(one).update_seconds, 0.1 * (2 * 12 + 16));
  one.ranks = one.ranks_here = 4;  // two on a core
  one.owners = 4;
  EXPECT_DOUBLE_EQ(plan::make_plan(one).update_seconds, 2 * 0.1 * (12 + 8));
  one.ranks_here = 2;  // the others are on another host
  EXPECT_DOUBLE_EQ(plan::make_plan(one).update_seconds, 0.1 * (12 + 8));
}

TEST(TrainingPlan, ActivationsInAFileAreBesideTheMemory) {
  plan::PlannedJob one = job(8, 1, 2);
  one.pipeline = 2;
  const plan::Memory kept = plan::make_plan(one).memory;
  one.offloads_activations = true;
  one.activations_per_micro = 2000;
  one.file_per_micro = 4800;
  const plan::TrainingPlan plan = plan::make_plan(one);
  ASSERT_GT(plan.live_micro_batches, 1);
  EXPECT_EQ(plan.memory.activations, 2000) << "whatever the number of micro-batches under way";
  EXPECT_EQ(plan.memory.in_file, 4800 * plan.live_micro_batches / plan.stages);
  EXPECT_LT(plan.memory.total(), kept.total());
  EXPECT_THAT(plan::explain(plan), HasSubstr("(and 4.8 kB in a file)"));
}

TEST(TrainingPlan, OptimizerStateOnTheHostLeavesTheDevice) {
  plan::PlannedJob one = job(8, 1, 2);
  one.device = "cuda";
  one.ranks_here = 2;
  one.largest_blocks = one.parameters / 10;
  const plan::TrainingPlan kept = plan::make_plan(one);
  one.moments_on_host = one.optimizer_moments;
  const plan::TrainingPlan plan = plan::make_plan(one);
  EXPECT_EQ(plan.memory.on_host, kept.memory.optimizer);
  EXPECT_EQ(plan.rank_bytes() + kept.memory.optimizer * 85 / 100, kept.rank_bytes());
  // Blocks of pinned memory may lose an eighth.
  EXPECT_EQ(plan.host_total(),
            kept.host_total() + 2 * (kept.memory.optimizer + kept.memory.optimizer / 8));
  EXPECT_THAT(plan::explain(plan), HasSubstr(" on the host) + activations"));
}

TEST(TrainingPlan, ADeviceMayHaveLessMemoryThanOthersOfItsName) {
  plan::PlannedJob one = job(8, 1, 2);
  one.device = "cuda";
  one.accelerator = plan::find_accelerator("a100");
  const plan::TrainingPlan plan = plan::make_plan(one);
  EXPECT_TRUE(plan.fits_device());
  EXPECT_THAT(plan::explain(plan), HasSubstr("NVIDIA A100 SXM, 80.0 GB"));
  one.device_memory = plan.rank_bytes() - 1;
  const plan::TrainingPlan smaller = plan::make_plan(one);
  EXPECT_FALSE(smaller.fits_device());
  EXPECT_THAT(plan::device_refusal(smaller), ::testing::Not(HasSubstr("80.0 GB")));
}

// No figures of its maker are known, but the driver tells its memory.
TEST(TrainingPlan, TheMemoryOfAnyDeviceIsCompared) {
  plan::PlannedJob one = job(8, 1, 2);
  one.device = "cuda";
  one.device_memory = 1000;
  one.ranks_per_device = 2;
  const plan::TrainingPlan plan = plan::make_plan(one);
  EXPECT_FALSE(plan.fits_device());
  EXPECT_THAT(plan::explain(plan),
              AllOf(HasSubstr("device   cuda, 1.0 kB, each for 2 ranks of 500 bytes\n"),
                    HasSubstr("and the device has 1.0 kB")));
  one.device_memory = 0;
  EXPECT_TRUE(plan::make_plan(one).fits_device());
}

TEST(TrainingPlan, TheHostsMemoryTakesTime) {
  plan::PlannedJob one = job(8, 1, 2);
  one.device = "cuda";
  one.accelerator = plan::find_accelerator("h200");
  one.kernel_seconds = 1;
  const plan::TrainingPlan kept = plan::make_plan(one);
  EXPECT_EQ(kept.host_seconds, 0);
  one.moments_on_host = one.optimizer_moments;
  const plan::TrainingPlan moments = plan::make_plan(one);
  const double link = one.accelerator->host_link;
  EXPECT_DOUBLE_EQ(moments.host_seconds, 8.0 * static_cast<double>(one.parameters) / link);
  EXPECT_DOUBLE_EQ(moments.step_seconds(), kept.step_seconds() + moments.host_seconds);
  EXPECT_THAT(plan::explain(moments), HasSubstr(" + the host's memory "));
  one.offloads_activations = true;
  one.file_per_micro = 1'000'000;
  const plan::TrainingPlan both = plan::make_plan(one);
  EXPECT_NEAR(both.host_seconds - moments.host_seconds,
              2e6 * static_cast<double>(both.micro_per_rank) / link, 1e-12);
  one.owners = 2;
  one.shards_weights = one.weights_on_host = true;
  const plan::TrainingPlan shards = plan::make_plan(one);
  // Moments, and in an update and in both passes of each micro-batch half of the weights.
  EXPECT_NEAR(
      shards.host_seconds - both.host_seconds,
      (2 * shards.micro_per_rank + 1 - 2) * 2.0 * static_cast<double>(one.parameters) / link,
      1e-12);
}

// Masters of 4 bytes and sharded weights of 2. On the device are 15 % of them during an update, and
// 10 % of the weights before they are gathered.
TEST(TrainingPlan, MastersAndShardsOnTheHostLeaveTheDevice) {
  plan::PlannedJob one = job(8, 1, 2);
  one.device = "cuda";
  one.precision = "bf16";
  one.owners = 2;
  one.shards_weights = true;
  one.largest_blocks = one.parameters / 10;
  const plan::TrainingPlan kept = plan::make_plan(one);
  one.weights_on_host = true;
  const plan::TrainingPlan plan = plan::make_plan(one);
  const std::int64_t owned = one.parameters / 2;
  EXPECT_EQ(kept.memory.weights, 6 * owned);
  EXPECT_EQ(plan.memory.weights, 0);
  EXPECT_EQ(plan.memory.on_host, 6 * owned);
  EXPECT_EQ(plan.memory.optimizer, kept.memory.optimizer + 6 * owned * 15 / 100);
  EXPECT_EQ(plan.memory.moving, kept.memory.moving + 2 * owned / 10);
  // 20 intervals of 50 bytes are in pinned blocks of powers of two.
  EXPECT_EQ(plan.host_total(), kept.host_total() + 4 * owned + 4 * owned / 8 + 1280);
}

// Counted in halves of an all-reduce: gradients to their owners, weights back.
TEST(TrainingPlan, CommunicationOfPartsIsCountedInHalves) {
  plan::PlannedJob one = job(8, 1, 2);
  const double all = plan::make_plan(one).communication.seconds;
  one.owners = 2;
  const auto of = [&](bool gradients, bool weights) {
    one.shards_gradients = gradients;
    one.shards_weights = weights;
    return plan::make_plan(one).communication.seconds;
  };
  EXPECT_DOUBLE_EQ(of(false, false), all);
  EXPECT_DOUBLE_EQ(of(true, false), 4 * all / 2 + all / 2);
  EXPECT_DOUBLE_EQ(of(true, true), 4 * (all / 2 + all));
  EXPECT_THAT(plan::explain(plan::make_plan(one)), HasSubstr("of reduce-scatter and all-gather"));
  one.precision = "bf16";
  EXPECT_DOUBLE_EQ(of(true, true), 4 * all);
}

TEST(TrainingPlan, UnevenRanksCountTheLargestShare) {
  EXPECT_EQ(plan::make_plan(job(7, 1, 3)).micro_per_rank, 3);
  EXPECT_EQ(plan::make_plan(job(7, 1, 1)).open_sums, 3);
}

TEST(TrainingPlan, ExplainsItself) {
  plan::PlannedJob two = job(8, 2, 2), four = job(8, 2, 4);
  two.ranks_here = 2;
  const std::string text = plan::explain(plan::make_plan(two));
  EXPECT_THAT(text, AllOf(HasSubstr("tiny on 2 ranks"), HasSubstr("1,000 parameters"),
                          HasSubstr("512 a step"), HasSubstr("5,120 in all"),
                          HasSubstr("2 cores for 2 ranks x 1 thread"), HasSubstr("2 on each rank"),
                          Not(HasSubstr("share cores"))));
  four.ranks_here = 4;
  EXPECT_THAT(plan::explain(plan::make_plan(four)), HasSubstr("ranks share cores"));
  four.ranks_here = 2;  // the others are on another host
  EXPECT_THAT(plan::explain(plan::make_plan(four)),
              AllOf(HasSubstr("2 cores for 2 ranks x 1 thread"), Not(HasSubstr("share cores"))));
  EXPECT_THAT(plan::explain(plan::make_plan(job(8, 2, 1))), HasSubstr("1 stays free"));
}

// Huge numbers do not overflow, and more of something never fits where less does not.
TEST(TrainingPlan, TheLargestNumbersDoNotOverflow) {
  plan::PlannedJob one = job(1'000'000'000, 1, 1);
  one.parameters = 1'000'000'000'000'000;
  one.activations_per_micro = 1'000'000'000'000'000'000;
  one.optimizer_moments = 3;
  one.lanes = 1024;
  one.steps = 1'000'000'000'000'000;
  one.tokens_per_sample = 1'000'000;
  const plan::TrainingPlan plan = plan::make_plan(one);
  const std::int64_t exabyte = 1'000'000'000'000'000'000;
  EXPECT_GT(plan.memory.total(), exabyte);
  for (const std::int64_t part : {plan.memory.weights, plan.memory.gradients, plan.memory.optimizer,
                                  plan.memory.activations, plan.memory.temporaries})
    EXPECT_GT(part, 1'000'000'000'000'000);
  EXPECT_THAT(plan::explain(plan), HasSubstr("a rank, predicted"));
}

// Three ranks' shares are no single nodes of the tree: 5 leaves need two sums at a time.
TEST(TrainingPlan, CountsTheOpenSumsOfThreeRanks) {
  EXPECT_EQ(plan::make_plan(job(5, 1, 3)).open_sums, 2);
  EXPECT_EQ(plan::make_plan(job(10, 1, 3)).open_sums, 3);
  EXPECT_EQ(plan::make_plan(job(8, 1, 4)).open_sums, 1);
}

TEST(TrainingPlan, RanksOfAHostShareTheText) {
  plan::PlannedJob two = job(8, 1, 2);
  two.ranks_here = 2;
  plan::TrainingPlan plan = plan::make_plan(two);
  EXPECT_EQ(plan.shared(), plan.memory.text);
  EXPECT_GT(plan.shared(), 0);
  EXPECT_EQ(plan.host_total(), plan.shared() + 2 * (plan.memory.total() - plan.shared()));
  EXPECT_TRUE(plan.fits());
  plan.job.host_memory = plan.host_total();
  EXPECT_TRUE(plan.fits());
  EXPECT_THAT(plan::explain(plan), Not(HasSubstr("does not fit")));
  --plan.job.host_memory;
  plan.job.host_memory_reason = "1 byte is left";
  EXPECT_FALSE(plan.fits());
  EXPECT_TRUE(plan.keeps_to_limit());
  EXPECT_THAT(plan::explain(plan), AllOf(HasSubstr("does not fit: 2 ranks are predicted to take"),
                                         HasSubstr("together, and 1 byte is left")));
  plan.job.simulated = true;  // threads of one process
  EXPECT_EQ(plan.shared(), plan.memory.runtime());
}

TEST(TrainingPlan, ServersOfTheHostTakeItsMemory) {
  plan::PlannedJob with = job(8, 2, 2);
  with.ranks_here = 2;
  with.servers = with.servers_here = 2;
  with.server_bytes = 1000;
  plan::PlannedJob without = with;
  without.servers_here = 0;  // they are elsewhere
  plan::TrainingPlan plan = plan::make_plan(with);
  const std::int64_t of_ranks = plan::make_plan(without).host_total();
  EXPECT_EQ(plan.host_total(), of_ranks + 2 * (plan.memory.program + 1000));
  plan.job.host_memory = of_ranks;
  EXPECT_THAT(plan::host_refusal(plan), HasSubstr("2 ranks and 2 servers are predicted to take"));
  EXPECT_FALSE(plan.fits());
}

// Schedules number micro-batches with at most four digits.
TEST(TrainingPlan, MoreMicroBatchesThanAScheduleHasAreRefused) {
  plan::PlannedJob many = job(20'000, 1, 2);
  many.pipeline = 2;
  EXPECT_THAT(refusal(many), AllOf(HasSubstr("20,000 micro-batches in each pipeline"),
                                   HasSubstr("at most 9,999"), HasSubstr("Raise batch.micro")));
  many.batch = 9'999;
  EXPECT_THAT(refusal(many), HasSubstr("nothing was thrown"));
}

}  // namespace
}  // namespace trireme
