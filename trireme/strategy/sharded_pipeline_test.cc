// Weights sharded among the ranks of a pipeline's stage (ZeRO-3, hybrid): every schedule gives one
// process's bits, blocks are whole for a pass at a time, and all ranks notice one lost in a gather.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/linear.h>

#include <cstdlib>
#include <filesystem>
#include <map>
#include <mutex>
#include <random>
#include <set>

#include "trireme/base/error.h"
#include "trireme/comm/simulate.h"
#include "trireme/models/module_block.h"
#include "trireme/plan/schedule/generators/schedules.h"
#include "trireme/strategy/pipeline_training_test.h"
#include "trireme/sync/gathers/pass_uses.h"
#include "trireme/testing/faulty_transport.h"

namespace trireme::sharded_pipeline_test {
namespace {

using namespace parallel::test;
using parallel::Phase;
using parallel::ShardEvent;
using parallel::Use;
using ::testing::HasSubstr;

constexpr int kLayers = 6;  // with a tied embedding and head: 8 blocks

Model model_of(const std::string& precision,
               OptimizerOptions optimizer = AdamW{.learning_rate = 1e-2}) {
  return {[precision] { return gpt(precision, kLayers); }, token_loss(), std::move(optimizer),
          precision};
}

std::vector<std::string> every_schedule() {
  std::vector<std::string> names;
  for (const plan::ScheduleEntry& entry : plan::schedules()) names.emplace_back(entry.name);
  return names;
}

// Batches of 5 and 8 micro-batches: some pipelines have one micro-batch less than others.
TEST(ShardedPipeline, EverySchedulesBitsAreThoseOfOneProcess) {
  const Model model = model_of("fp32");
  const Outcome one = train_on(model, {});
  EXPECT_GE(every_schedule().size(), 9u);
  for (const std::string& schedule : every_schedule())
    for (const int pipeline : {2, 4})
      for (const int data : {1, 2, 3}) {
        const Layout layout{pipeline, data, schedule, 0, "zero3"};
        EXPECT_EQ(train_on(model, layout), one) << name_of(layout);
      }
}

TEST(ShardedPipeline, ReplicasOfSharedWeightsTrainTheSameModel) {
  const Model model = model_of("fp32");
  const Outcome one = train_on(model, {});
  for (const std::string& schedule : every_schedule()) {
    const Layout layout{2, 4, schedule, 0, "hybrid", "none", 2};
    EXPECT_EQ(train_on(model, layout), one) << name_of(layout);
  }
  // Six pipelines share five micro-batches: one group of two has three of them, the others one.
  for (const Layout& layout : {Layout{2, 6, "1f1b", 0, "hybrid", "none", 2},
                               {2, 6, "zb-v", 0, "hybrid", "none", 3},
                               {4, 2, "1f1b", 0, "hybrid", "none", 1}})
    EXPECT_EQ(train_on(model, layout), one) << name_of(layout);
}

TEST(ShardedPipeline, RecomputedAndOffloadedActivationsChangeNoBit) {
  const Model model = model_of("fp32");
  const Outcome one = train_on(model, {});
  const std::string folder = std::filesystem::temp_directory_path();
  for (const std::string schedule : {"1f1b", "zb-h1", "interleaved-1f1b", "dualpipe-v"}) {
    for (const char* recompute : {"full", "every-2", "selective"}) {
      const Layout layout{2, 2, schedule, 0, "zero3", recompute};
      EXPECT_EQ(train_on(model, layout), one) << name_of(layout);
    }
    Layout layout{2, 2, schedule, 0, "zero3"};
    layout.offload = folder;
    EXPECT_EQ(train_on(model, layout), one) << name_of(layout) << ", weights in a file";
    layout.offload_activations = folder;
    EXPECT_EQ(train_on(model, layout), one) << name_of(layout) << ", activations in a file";
    layout.recompute = "every-2";
    EXPECT_EQ(train_on(model, layout), one) << name_of(layout) << ", both in files";
  }
}

TEST(ShardedPipeline, EveryPrecisionAndOptimizer) {
  for (const char* precision : {"bf16", "fp16", "fp64"}) {
    const Outcome one = train_on(model_of(precision), {});
    for (const Layout& layout : {Layout{2, 2, "1f1b", 0, "zero3"},
                                 {2, 3, "zb-v", 0, "zero3"},
                                 {2, 4, "zb-h1", 0, "hybrid", "none", 2}})
      EXPECT_EQ(train_on(model_of(precision), layout), one) << name_of(layout) << precision;
  }
  for (const OptimizerOptions& optimizer : {OptimizerOptions(Lamb{}), {Adafactor{}}, {Lion{}}}) {
    const Model model = model_of("fp32", optimizer);
    const Outcome one = train_on(model, {});
    for (const char* schedule : {"1f1b", "zb-v"})
      EXPECT_EQ(train_on(model, {2, 2, schedule, 0, "zero3"}), one) << schedule;
  }
}

// Foreign layers compute weight gradients in I, and W passes them on.
TEST(ShardedPipeline, OfLayersThatAreNotOurs) {
  const Model model{mlp, squared_loss(), Sgd{.learning_rate = 1e-3, .momentum = 0.9}};
  const Outcome one = train_on(model, {});
  for (const Layout& layout : {Layout{2, 3, "1f1b", 0, "zero3"}, {2, 2, "zb-h2", 0, "zero3"}})
    EXPECT_EQ(train_on(model, layout), one) << name_of(layout);
}

// ---- a rank's uses, and what it holds -----------------------------------------------------------

std::string text_of(const std::vector<Use>& uses) {
  std::string text;
  for (const Use& use : uses)
    text += std::string(text.empty() ? "" : " ") + "FBIW"[static_cast<int>(use.phase)] +
            std::to_string(use.part) + "." + std::to_string(use.block) + "/" +
            std::to_string(use.microbatch);
  return text;
}

TEST(ShardedPipeline, UsesComeInTheOrderOfThePasses) {
  const plan::Schedule split = plan::parse_schedule(
      "0: F0.0 F0.1 I0.0 W0.0 I0.1 W0.1\n"
      "1: F1.0 I1.0 F1.1 W1.0 I1.1 W1.1\n");
  EXPECT_EQ(text_of(parallel::uses_of(split.order[1], std::vector<parallel::StageBlocks>{{1, 2}})),
            "F0.0/0 F0.1/0 I0.1/0 I0.0/0 F0.0/1 F0.1/1 W0.1/0 W0.0/0 I0.1/1 I0.0/1 W0.1/1 W0.0/1");
  const std::vector<plan::Action> two = {{plan::ActionKind::Forward, 3, 0},
                                         {plan::ActionKind::SendActivation, 3, 0},
                                         {plan::ActionKind::ForwardBackward, 0, 1, 3, 0}};
  EXPECT_EQ(text_of(parallel::uses_of(two, std::vector<parallel::StageBlocks>{{0, 1}, {3, 2}})),
            "F1.0/0 F1.1/0 F0.0/1 B1.1/0 B1.0/0");
}

// The most blocks whose whole weights a rank holds, and the most buckets under way.
struct Held {
  std::set<std::pair<int, std::uint32_t>> blocks;
  std::size_t most_blocks = 0, gathers = 0, weight_bytes = 0, most_weight_bytes = 0;
  std::size_t bucket_bytes = 0, most_bucket_bytes = 0;
  void take(const ShardEvent& event) {
    switch (event.kind) {
      case ShardEvent::Kind::Gather:
        EXPECT_TRUE(blocks.emplace(event.use.part, event.number).second);
        most_blocks = std::max(most_blocks, blocks.size());
        weight_bytes += event.bytes;
        most_weight_bytes = std::max(most_weight_bytes, weight_bytes);
        ++gathers;
        break;
      case ShardEvent::Kind::Free:
        EXPECT_EQ(blocks.erase({event.use.part, event.number}), 1u);
        weight_bytes -= event.bytes;
        break;
      case ShardEvent::Kind::Send:
        bucket_bytes += event.bytes;
        most_bucket_bytes = std::max(most_bucket_bytes, bucket_bytes);
        break;
      case ShardEvent::Kind::Fold:
        bucket_bytes -= event.bytes;
        break;
      case ShardEvent::Kind::Use:
        break;
    }
  }
};

constexpr std::int64_t kWidth = 64;
models::Blocks stack(int blocks) {
  return models::make_mlp(
      {.widths = std::vector<std::int64_t>(static_cast<std::size_t>(blocks) + 1, kWidth),
       .input = "numbers"});
}

// Eight blocks on two ranks, so four per rank. Two at a time are whole, whatever the schedule; what
// is sent is bounded by buckets, not by how far pipelines are apart.
TEST(ShardedPipeline, ARankHoldsTwoBlocksAtATime) {
  constexpr std::size_t kBucket = (kWidth * kWidth + kWidth) * 4;
  for (const std::string& schedule : every_schedule()) {
    for (const std::uint32_t total : {8u, 7u}) {
      std::mutex mutex;
      testing::run_ranks(4, [&](testing::RankContext& rank) {
        Held held;
        kernel::Assignment assignment;
        parallel::StrategyContext env{.world = rank.world.get()};
        env.assign = [&](const kernel::Assignment& dealt) { assignment = dealt; };
        env.on_shard_event = [&](const ShardEvent& event) { held.take(event); };
        Strategy strategy(env, stack(8),
                          {.sync = "zero3",
                           .pipeline = 2,
                           .schedule = schedule,
                           .bucket_bytes = static_cast<std::int64_t>(kBucket)},
                          optim::make_optimizer(Sgd{}));
        Batch batch{.total = total, .global_count = total};
        for (const std::uint32_t i : leaves_of(assignment, total, rank.rank))
          batch.micro.push_back(
              {.index = i, .count = 1, .fields = {{"numbers", at::full({1, kWidth}, 0.01)}}});
        strategy.step(batch, [](const models::Value& output, const MicroBatch&) {
          return output.at(0).pow(2).sum();
        });
        const std::lock_guard lock(mutex);
        SCOPED_TRACE(schedule + ", " + std::to_string(total) + " micro-batches");
        EXPECT_LE(held.most_blocks, 2u);
        EXPECT_EQ(held.blocks.size(), 0u);
        EXPECT_EQ(held.weight_bytes, 0u);
        EXPECT_EQ(held.bucket_bytes, 0u);
        // Four are under way, each with one bucket sent and two halves received.
        EXPECT_LE(held.most_bucket_bytes, 2 * 4 * 2 * kBucket);
        // Forward and back; the last block's weights stay if backward follows at once.
        EXPECT_LE(held.gathers, 4u * 2 * 4);
        EXPECT_GE(held.gathers, 4u * 4);
      });
    }
  }
}

// ---- failures -----------------------------------------------------------------------------------

TEST(ShardedPipeline, ARefusedStepLeavesNothingBehind) {
  const auto hash = [](const Layout& layout, int failing, bool fails) {
    std::string result;
    testing::run_ranks(layout.pipeline * layout.data, [&](testing::RankContext& rank) {
      kernel::Assignment assignment{1, 1};
      parallel::StrategyContext env{.world = rank.world.get()};
      env.assign = [&](const kernel::Assignment& dealt) { assignment = dealt; };
      Strategy strategy(env, gpt("fp32", kLayers),
                        {.sync = layout.sync,
                         .pipeline = layout.pipeline,
                         .schedule = layout.schedule,
                         .shard = layout.shard,
                         .bucket_bytes = 2048},
                        optim::make_optimizer(AdamW{.learning_rate = 1e-2}));
      const auto batch = [&](int step, std::uint32_t total) {
        return batch_of(step, total, rank.rank, assignment);
      };
      strategy.step(batch(0, 8), token_loss());
      const Loss loss = [&](const models::Value& output, const MicroBatch& micro) {
        if (static_cast<int>(micro.index) == failing) throw std::out_of_range("no such word");
        return token_loss()(output, micro);
      };
      if (fails) {
        try {
          strategy.step(batch(1, 5), loss);
          ADD_FAILURE() << "the step was applied";
        } catch (const StepRefused& error) {
          EXPECT_THAT(error.what(), HasSubstr("no such word"));
        }
      }
      strategy.step(batch(2, 8), token_loss());
      const std::string own = strategy.weights_hash();
      if (rank.rank == 0) result = own;
    });
    return result;
  };
  const std::string one = hash({}, 0, false);
  for (const Layout& layout : {Layout{2, 2, "1f1b", 0, "zero3"},
                               {2, 3, "zb-h1", 0, "zero3"},
                               {2, 2, "interleaved-1f1b", 0, "zero3"},
                               {2, 4, "zb-v", 0, "hybrid", "none", 2}})
    for (const int failing : {0, 3, 4})
      EXPECT_EQ(hash(layout, failing, true), one) << name_of(layout) << ", " << failing;
}

TEST(ShardedPipeline, ALoopThatEndsEarlyEndsTheOthers) {
  for (const int data : {2, 3}) {
    int named = 0, bereft = 0;
    std::mutex mutex;
    testing::run_ranks(2 * data, [&](testing::RankContext& rank) {
      kernel::Assignment assignment;
      parallel::StrategyContext env{.world = rank.world.get()};
      env.assign = [&](const kernel::Assignment& dealt) { assignment = dealt; };
      Strategy strategy(env, gpt(), {.sync = "zero3", .pipeline = 2},
                        optim::make_optimizer(AdamW{}));
      strategy.step(batch_of(0, 8, rank.rank, assignment), token_loss());
      if (rank.rank == 1) return;
      try {
        strategy.step(batch_of(2, 8, rank.rank, assignment), token_loss());
        ADD_FAILURE() << "the step was applied";
      } catch (const UnevenInput& error) {
        EXPECT_EQ(error.peer(), 1);
        const std::lock_guard lock(mutex);
        ++named;
      } catch (const PeerLost&) {
        const std::lock_guard lock(mutex);
        ++bereft;
      }
    });
    EXPECT_GE(named, 1);
    EXPECT_EQ(named + bereft, 2 * data - 1);
  }
}

// Chosen by a seed, a rank's transport breaks at its n-th call in two steps. Nobody waits for ever
// (the network would report who waits for whom), and all other ranks see a lost peer.
TEST(ShardedPipeline, ALostRankIsNoticedByAll) {
  const char* text = std::getenv("TRIREME_FAULT_SEEDS");
  const int seeds = text != nullptr ? std::atoi(text) : 24;
  const std::vector<std::string> schedules = every_schedule();
  int broken = 0;
  for (int seed = 1; seed <= seeds && !::testing::Test::HasFailure(); ++seed) {
    std::mt19937_64 random(static_cast<std::uint64_t>(seed));
    const auto below = [&](std::size_t most) { return static_cast<int>(random() % most); };
    const int data = 2 + below(2), size = 2 * data, victim = below(static_cast<std::size_t>(size));
    const bool shared_memory = below(2) == 0;
    const int place = 300 + below(shared_memory ? 600 : 4000);
    const std::string schedule = schedules[static_cast<std::size_t>(below(schedules.size()))];
    SCOPED_TRACE("seed " + std::to_string(seed) + ": " + schedule + ", rank " +
                 std::to_string(victim) + " of " + std::to_string(size) + " at place " +
                 std::to_string(place));
    comm::SimulationOptions simulation;
    simulation.network.seed = static_cast<std::uint64_t>(seed);
    simulation.network.shared_memory = shared_memory;
    simulation.prepare = [&](comm::SimulatedRank& rank, comm::CommunicatorOptions&) {
      const auto left = std::make_shared<int>(rank.rank == victim ? place : -1);
      rank.transport = std::make_shared<testing::FaultyTransport>(
          rank.transport, [left, inner = rank.transport](testing::FaultyTransport::Call, int) {
            if (*left < 0 || (*left)-- > 0) return;
            inner->abort(std::make_exception_ptr(ResourceError("the cable is cut")));
          });
    };
    std::vector<int> codes(static_cast<std::size_t>(size), 0);
    comm::simulate(size, simulation, [&](comm::SimulatedRank& rank) {
      try {
        kernel::Assignment assignment;
        parallel::StrategyContext env{.world = rank.world.get()};
        env.assign = [&](const kernel::Assignment& dealt) { assignment = dealt; };
        Strategy strategy(
            env, gpt("fp32", 4),
            {.sync = "zero3", .pipeline = 2, .schedule = schedule, .bucket_bytes = 2048},
            optim::make_optimizer(AdamW{}));
        for (int step = 0; step < 3; ++step)
          strategy.step(batch_of(step, step == 1 ? 5 : 8, rank.rank, assignment), token_loss());
      } catch (const Error& error) {
        codes[static_cast<std::size_t>(rank.rank)] = static_cast<int>(error.code());
      }
    });
    if (codes[static_cast<std::size_t>(victim)] == 0) {
      EXPECT_THAT(codes, ::testing::Each(0));
      continue;
    }
    ++broken;
    for (int rank = 0; rank < size; ++rank) {
      if (rank == victim) continue;
      const int code = codes[static_cast<std::size_t>(rank)];
      EXPECT_TRUE(code == 160 || code == 170) << "rank " << rank << " ended with " << code;
    }
  }
  EXPECT_GE(broken, seeds / 2);
}

// ---- checkpoints --------------------------------------------------------------------------------

// Saved by one layout, resumed by another: the result is one process's.
TEST(ShardedPipeline, StateGoesOnAnywhere) {
  struct Saved {
    std::map<std::string, at::Tensor> tensors;
    std::string metadata, hash;
  };
  const auto run = [](const Layout& layout, const Saved* from, int first, int last) {
    Saved saved;
    std::mutex mutex;
    testing::run_ranks(layout.pipeline * layout.data, [&](testing::RankContext& rank) {
      kernel::Assignment assignment{1, 1};
      parallel::StrategyContext env{.world = rank.world.get()};
      env.assign = [&](const kernel::Assignment& dealt) { assignment = dealt; };
      Strategy strategy(env, gpt(),
                        {.sync = layout.sync,
                         .pipeline = layout.pipeline,
                         .schedule = layout.schedule,
                         .shard = layout.shard,
                         .ema = 0.9},
                        optim::make_optimizer(AdamW{.learning_rate = 1e-2}));
      if (from != nullptr) {
        for (const NamedShard& shard : strategy.state())
          shard.local.flatten().copy_(
              from->tensors.at(shard.name).narrow(0, shard.begin, shard.end - shard.begin));
        strategy.restored(from->metadata);
      }
      for (int step = first; step < last; ++step)
        strategy.step(batch_of(step, 8, rank.rank, assignment), token_loss());
      strategy.use_average(true);
      const std::string averaged = strategy.weights_hash();
      strategy.use_average(false);
      const std::string hash = strategy.weights_hash() + " " + averaged;
      const auto state = strategy.state();
      const std::lock_guard lock(mutex);
      saved.metadata = strategy.metadata();
      saved.hash = hash;
      for (const NamedShard& shard : state) {
        std::int64_t count = 1;
        for (const std::int64_t dim : shard.shape) count *= dim;
        at::Tensor& whole = saved.tensors[shard.name];
        if (!whole.defined()) whole = at::full({count}, NAN, shard.local.options());
        whole.narrow(0, shard.begin, shard.end - shard.begin).copy_(shard.local.flatten());
      }
    });
    return saved;
  };
  const Saved half = run({}, nullptr, 0, 2), end = run({}, nullptr, 0, 4);
  for (const Layout& layout : {Layout{2, 2, "1f1b", 0, "zero3"},
                               {4, 3, "zb-h1", 0, "zero3"},
                               {2, 2, "zb-v", 0, "zero3"},
                               {2, 4, "1f1b", 0, "hybrid", "none", 2}}) {
    const Saved own = run(layout, nullptr, 0, 2);
    EXPECT_EQ(own.hash, half.hash) << name_of(layout);
    EXPECT_EQ(own.tensors.size(), half.tensors.size()) << name_of(layout);
    for (const auto& [name, tensor] : half.tensors)
      EXPECT_TRUE(at::equal(own.tensors.at(name), tensor)) << name << ", " << name_of(layout);
    EXPECT_EQ(run(layout, &half, 2, 4).hash, end.hash) << name_of(layout);
    for (const Layout& other : {Layout{}, Layout{1, 3, "1f1b", 0, "zero3"}, Layout{2, 1, "gpipe"}})
      EXPECT_EQ(run(other, &own, 2, 4).hash, end.hash) << name_of(layout);
  }
}

TEST(ShardedPipeline, TheLastValueReachesEveryRank) {
  at::Tensor one;
  testing::run_ranks(1, [&](testing::RankContext& rank) {
    Strategy strategy({.world = rank.world.get()}, gpt(), {}, optim::make_optimizer(AdamW{}));
    one = strategy.infer(micro_batch(0, 0, 2)).at(0);
  });
  testing::run_ranks(6, [&](testing::RankContext& rank) {
    Strategy strategy({.world = rank.world.get()}, gpt(), {.sync = "zero3", .pipeline = 2},
                      optim::make_optimizer(AdamW{}));
    EXPECT_FALSE(strategy.has_whole_weights());
    EXPECT_TRUE(at::equal(strategy.infer(micro_batch(0, 0, 2)).at(0), one));
  });
}

}  // namespace
}  // namespace trireme::sharded_pipeline_test
