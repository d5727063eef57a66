// Elastic trainings on the simulated network: whatever is killed and whenever, the weights are those
// of the run that was not disturbed. TRIREME_ELASTIC_RUNS: how many runs of each kind.
#include <ATen/Functions.h>
#include <gtest/gtest.h>

#include <unistd.h>

#include <cmath>
#include <cstdlib>
#include <map>
#include <random>
#include <span>

#include "trireme/checkpoint/checkpointer.h"
#include "trireme/job/job_input.h"
#include "trireme/kernel/assignment.h"
#include "trireme/models/models.h"
#include "trireme/models/recommender.h"
#include "trireme/storage/forwarding_file_system_test.h"
#include "trireme/storage/storage.h"
#include "trireme/strategy/strategy.h"
#include "trireme/tensor/random.h"
#include "trireme/train/elastic_cluster_test.h"

namespace trireme::train_test {
namespace {

constexpr std::uint32_t kMicroBatches = 12;
constexpr long kSteps = 10;
constexpr std::int64_t kWidth = 6, kClasses = 4, kCategories = 3;

MicroBatch micro_batch(std::int64_t step, std::uint32_t index) {
  at::Tensor features = at::empty({2, kWidth}, at::kFloat);
  tensor::fill_uniform(features, 7, std::to_string(step) + "/" + std::to_string(index), -1, 1);
  const at::Tensor categories =
      at::floor((features.narrow(1, 0, kCategories) + 1) * 20).to(at::kLong);
  return {.index = index,
          .first_sample = 2 * index,
          .count = 2,
          .fields = {{"features", features},
                     {"targets", at::remainder(at::arange(2) + index, kClasses).to(at::kLong)},
                     {"numbers", features},
                     {"categories", categories}}};
}

Batch batch_of(const Job& job, std::int64_t step) {
  Batch batch{.total = kMicroBatches, .global_count = 2 * kMicroBatches, .step = step};
  for (const std::uint32_t i : leaves_of(job.input().assignment(), kMicroBatches, job.rank()))
    batch.micro.push_back(micro_batch(step, i));
  return batch;
}

struct Layout {
  std::string sync = "plain";
  int memory = 0, pipeline = 1, tensor = 1, servers = 0;
  bool rows = false;  // a model with embeddings on the servers, of which they drop some
  std::string compression = "none";
  int ranks_of_a_copy() const { return pipeline * tensor; }
};

models::Blocks model_of(const Layout& layout) {
  if (!layout.rows) return models::make_mlp({.widths = {kWidth, 8, kClasses}});
  return models::make_dlrm({.numbers = kWidth,
                            .categories = kCategories,
                            .width = 4,
                            .bottom = {6},
                            .top = {6},
                            .bound = 0.5,
                            .max_rows = 30});
}

Loss loss_of(const Layout& layout) {
  if (!layout.rows) return token_loss();
  return [](const models::Value& output, const MicroBatch& micro) {
    return at::sum(at::square(output.at(0).flatten() - micro.field("targets").flatten()));
  };
}

// Trains to the end, in whatever epochs; the hash of the weights. `at_step` is told the step.
std::string train(ElasticCluster& cluster, Job& job, const Layout& layout,
                  const std::function<void(long)>& at_step, std::vector<long>* firsts = nullptr,
                  const std::shared_ptr<storage::Storage>& storage = nullptr) {
  std::string hash;
  run_elastic(job, [&] {
    Strategy strategy(cluster.context_of(job), model_of(layout),
                      {.sync = layout.sync,
                       .pipeline = layout.pipeline,
                       .tensor = layout.tensor,
                       .clip = 0.5,
                       .bucket_bytes = 1024,
                       .compression = layout.compression},
                      AdamW{.learning_rate = 0.01});
    Checkpointer checkpointer(
        job, ::testing::TempDir() + "no-checkpoints-" + std::to_string(getpid()),
        {.every = 0, .memory = layout.memory, .storage = storage, .lock = false});
    checkpointer.add("train", strategy);
    const long first = job.changes().epoch().number > 0 ? checkpointer.resume() : 0;
    if (firsts != nullptr) firsts->push_back(first);
    for (long step = first; step < kSteps; ++step) {
      at_step(step);
      strategy.step(batch_of(job, step), loss_of(layout));
      checkpointer.after(step);
    }
    hash = strategy.weights_hash();
    return 0;
  });
  return hash;
}

// On as few ranks as hold one copy of the model. Tensor-parallel ranks add in an order of their own.
// Compressed gradients depend on the number of ranks.
std::string undisturbed(const Layout& layout = {}) {
  const int ranks = layout.compression == "none" ? layout.ranks_of_a_copy() : 4;
  ElasticCluster cluster(
      {.options = {.min = ranks, .max = ranks, .multiple = ranks, .stages = layout.pipeline},
       .ranks = ranks,
       .servers = layout.servers});
  std::string hash;
  cluster.run([&](Job& job, const auto& at_step) {
    hash = train(cluster, job, layout, [&](long) { at_step(); });
  });
  return hash;
}

int runs(int usual) {
  const char* const more = std::getenv("TRIREME_ELASTIC_RUNS");
  return more != nullptr ? std::atoi(more) : usual;
}

struct Kind {
  const char* name;
  const char* sync = "plain";
  int memory = 0, kills = 0, hangs = 0, spares = 0, min = 1;
  int pipeline = 1, tensor = 1;
  int coordinator_deaths = 0, cuts = 0;
  std::vector<std::pair<Duration, int>> resizes = {};
  int servers = 0;
  bool rows = false;
  const char* compression = "none";
  Layout layout() const { return {sync, memory, pipeline, tensor, servers, rows, compression}; }
};

// Lost packets and late messages; and connections that are cut for a while, some of which break, although
// both ends live.
net::SimFaults faults_of(int seed, int cuts) {
  if (cuts == 0) return {};
  net::SimFaults faults{.lost_per_million = 20'000,
                        .retransmission = milliseconds(1),
                        .late_per_million = 50'000,
                        .late = milliseconds(2),
                        .patience = milliseconds(3)};
  std::mt19937 random(static_cast<unsigned>(seed));
  const auto draw = [&](unsigned below) { return static_cast<int>(random() % below); };
  for (int i = 0; i < cuts; ++i) {
    const int from = draw(4), to = (from + 1 + draw(3)) % 4;
    const microseconds begin(draw(15'000));
    faults.cuts.push_back({from, to, begin, begin + microseconds(draw(5'000))});
  }
  return faults;
}

class ElasticTraining : public ::testing::TestWithParam<Kind> {};

TEST_P(ElasticTraining, HasTheWeightsOfTheRunThatWasNotDisturbed) {
  const Kind kind = GetParam();
  const Layout layout = kind.layout();
  const std::string expected =
      undisturbed(kind.rows || layout.compression != "none"
                      ? layout
                      : Layout{.pipeline = kind.pipeline, .tensor = kind.tensor});
  int deaths = 0, disturbed = 0;
  for (int seed = 1; seed <= runs(25); ++seed) {
    ElasticCluster cluster({.options = {.min = std::max(kind.min, layout.ranks_of_a_copy()),
                                        .max = 4,
                                        .multiple = layout.ranks_of_a_copy(),
                                        .stages = layout.pipeline,
                                        .spares = kind.spares,
                                        .silence = milliseconds(20)},
                            .ranks = 4,
                            .servers = layout.servers,
                            .network = {.seed = static_cast<std::uint64_t>(seed),
                                        .shared_memory = seed % 4 == 0 && kind.cuts == 0,
                                        .faults = faults_of(seed, kind.cuts)},
                            .kills = kind.kills,
                            .hangs = kind.hangs,
                            .coordinator_deaths = kind.coordinator_deaths,
                            .resizes = kind.resizes});
    int ended = 0;
    cluster.run([&](Job& job, const auto& at_step) {
      EXPECT_EQ(train(cluster, job, layout, [&](long) { at_step(); }), expected) << "seed " << seed;
      ++ended;
    });
    EXPECT_GE(ended, 1) << "seed " << seed << ": " << cluster.trouble();
    deaths += cluster.deaths();
    disturbed += cluster.epochs() > 1;
  }
  EXPECT_GT(deaths, runs(25));
  EXPECT_GT(disturbed, runs(25) / 2);
  RecordProperty("deaths", deaths);
}

INSTANTIATE_TEST_SUITE_P(
    With, ElasticTraining,
    ::testing::Values(
        Kind{.name = "PlainKills", .sync = "plain", .kills = 4},
        Kind{.name = "PlainHangs", .sync = "plain", .kills = 1, .hangs = 2},
        Kind{.name = "PlainSpares", .sync = "plain", .kills = 4, .spares = 1, .min = 3},
        Kind{.name = "PlainWithoutCoordinator",
             .sync = "plain",
             .kills = 3,
             .coordinator_deaths = 3},
        Kind{.name = "PlainCuts", .sync = "plain", .kills = 2, .cuts = 2},
        Kind{.name = "Zero1Kills", .sync = "zero1", .memory = 1, .kills = 3},
        Kind{.name = "Zero2Kills", .sync = "zero2", .memory = 1, .kills = 3},
        Kind{.name = "Zero3Kills", .sync = "zero3", .memory = 1, .kills = 3},
        Kind{.name = "Zero3WithoutCoordinator",
             .sync = "zero3",
             .memory = 1,
             .kills = 2,
             .hangs = 1,
             .coordinator_deaths = 3},
        Kind{.name = "Zero3Cuts",
             .sync = "zero3",
             .memory = 1,
             .kills = 1,
             .coordinator_deaths = 1,
             .cuts = 2},
        Kind{.name = "Zero3WithoutCopies", .sync = "zero3", .kills = 2},
        Kind{.name = "Zero3KillsAndResizes",
             .sync = "zero3",
             .kills = 3,
             .resizes = {{milliseconds(4), 2}, {milliseconds(7), 4}, {milliseconds(13), 1}}},
        Kind{.name = "HybridKills", .sync = "hybrid", .memory = 1, .kills = 3},
        Kind{.name = "PipelineKills", .sync = "plain", .kills = 3, .pipeline = 2},
        Kind{.name = "PipelineHangs", .sync = "plain", .kills = 1, .hangs = 1, .pipeline = 2},
        Kind{.name = "PipelineZero1Kills", .sync = "zero1", .memory = 1, .kills = 3, .pipeline = 2},
        Kind{.name = "TensorKills", .sync = "plain", .kills = 3, .tensor = 2},
        Kind{.name = "TensorZero1Kills", .sync = "zero1", .memory = 1, .kills = 3, .tensor = 2},
        Kind{.name = "ServerKills", .sync = "server", .kills = 5, .servers = 2},
        Kind{.name = "ServerHangs", .sync = "server", .kills = 2, .hangs = 2, .servers = 2},
        Kind{.name = "ServerKillsAndResizes",
             .sync = "server",
             .kills = 3,
             .coordinator_deaths = 2,
             .resizes = {{milliseconds(4), 2}, {milliseconds(7), 4}, {milliseconds(13), 1}},
             .servers = 3},
        Kind{.name = "ServerRowsKillsAndResizes",
             .sync = "server",
             .kills = 4,
             .resizes = {{milliseconds(4), 2}, {milliseconds(7), 4}},
             .servers = 2,
             .rows = true},
        // With copies on all other ranks, and as many ranks in every step.
        Kind{.name = "TopKKills", .memory = 3, .kills = 3, .min = 4, .compression = "topk:0.1"},
        Kind{.name = "RandomKHangs",
             .memory = 3,
             .kills = 1,
             .hangs = 1,
             .min = 4,
             .compression = "randomk:0.2"},
        Kind{.name = "PowerSgdSpares",
             .memory = 3,
             .kills = 3,
             .spares = 1,
             .min = 4,
             .compression = "powersgd:1,3"}),
    [](const auto& info) { return std::string(info.param.name); });

// Two pipelines of two stages, or two pairs of tensor-parallel ranks: the copy of the model that is left
// whole goes on alone, and with the state in memory.
TEST(ElasticTraining, TheOtherCopyOfTheModelGoesOn) {
  for (const Layout& layout : {Layout{.pipeline = 2}, Layout{.tensor = 2}}) {
    const std::string expected = undisturbed(layout);
    for (int victim = 0; victim < 4; ++victim) {
      ElasticCluster cluster(
          {.options = {.min = 2, .max = 4, .multiple = 2, .stages = layout.pipeline, .restarts = 0},
           .ranks = 4});
      std::vector<long> firsts;
      int ended = 0;
      cluster.run([&](Job& job, const auto& at_step) {
        const int rank = job.rank();
        const bool first_epoch = job.changes().epoch().number == 0;
        const auto dies = [&](long step) {
          at_step();
          if (first_epoch && rank == victim && step == 5) throw std::runtime_error("killed");
        };
        std::vector<long> mine;
        EXPECT_EQ(train(cluster, job, layout, dies, &mine), expected) << victim;
        EXPECT_EQ(job.size(), 2);
        firsts.insert(firsts.end(), mine.begin() + 1, mine.end());
        ++ended;
      });
      EXPECT_EQ(ended, 2) << cluster.trouble();
      EXPECT_EQ(cluster.deaths(), 1);
      ASSERT_EQ(firsts.size(), 2u);
      for (const long first : firsts) EXPECT_EQ(first, 5) << "repeats steps, victim " << victim;
    }
  }
}

// Ranks of one copy of the model communicate between the vote and the update, too: their step must
// not be on the ranks of one copy only, when the launcher takes a part of each. While the messages
// of the last barrier are on their way it may be; copies in memory are for that.
TEST(ElasticTraining, ARankThatIsLostInTheMiddleOfAStepLeavesTheStateToTheOthers) {
  for (Layout layout : {Layout{.pipeline = 2}, Layout{.tensor = 2}}) {
    const std::string expected = undisturbed(layout);
    const int victim = layout.pipeline == 2 ? 2 : 1;
    int began_anew = 0;
    for (int delay = 60; delay < 200; delay += 4) {
      for (layout.memory = 0; layout.memory < 2; ++layout.memory) {
        ElasticCluster cluster(
            {.options =
                 {.min = 2, .max = 4, .multiple = 2, .stages = layout.pipeline, .restarts = 0},
             .ranks = 4,
             .network = {.seed = static_cast<std::uint64_t>(delay) + 1, .shared_memory = false}});
        std::vector<long> firsts;
        cluster.run([&](Job& job, const auto& at_step) {
          const bool is_victim = job.rank() == victim && job.changes().epoch().number == 0;
          const auto dies = [&](long step) {
            at_step();
            if (is_victim && step == 5) cluster.lose(victim, microseconds(delay));
          };
          std::vector<long> mine;
          EXPECT_EQ(train(cluster, job, layout, dies, &mine), expected) << delay;
          firsts.insert(firsts.end(), mine.begin() + 1, mine.end());
        });
        ASSERT_EQ(firsts.size(), 2u) << cluster.trouble();
        EXPECT_EQ(firsts[0], firsts[1]) << delay;
        if (layout.memory > 0) {
          EXPECT_GE(firsts[0], 4) << "repeats steps; killed after " << delay << " us";
        }
        began_anew += firsts[0] < 5 && layout.memory == 0;
      }
    }
    EXPECT_LE(began_anew, 1) << "of 35 moments";
  }
}

// A storage that does not answer for a while.
class Away final : public storage::ForwardingFileSystem {
 public:
  std::vector<std::string> list(const std::string& path) override {
    if (failures == 0 || answers-- > 0) return ForwardingFileSystem::list(path);
    --failures;
    throw ResourceError("no answer", {});
  }
  int failures = 0;
  int answers = 0;  // before the failures
};

TEST(ElasticTraining, GoesOnThoughTheStorageIsAwayWhenARankIsLost) {
  const std::string expected = undisturbed();
  const auto files = std::make_shared<Away>();
  ElasticCluster cluster({.options = {.min = 2, .max = 3, .restarts = 0}, .ranks = 3});
  int ended = 0;
  cluster.run([&](Job& job, const auto& at_step) {
    const bool is_victim = job.rank() == 2;
    const auto dies = [&](long step) {
      at_step();
      if (!is_victim || step != 5) return;
      files->failures = 3;
      throw std::runtime_error("killed");
    };
    std::vector<long> firsts;
    EXPECT_EQ(train(cluster, job, {}, dies, &firsts, storage::folder_storage(files)), expected);
    EXPECT_EQ(firsts.back(), 5);
    ++ended;
  });
  EXPECT_EQ(ended, 2) << cluster.trouble();
  EXPECT_EQ(cluster.deaths(), 1) << cluster.trouble();
  EXPECT_EQ(files->failures, 0);
}

TEST(ElasticTraining, WaitsForTheStorageWhenNoRankHasTheStateAnyMore) {
  const std::string expected = undisturbed();
  const auto files = std::make_shared<Away>();
  ElasticCluster cluster({.options = {.min = 2, .max = 3, .restarts = 0}, .ranks = 3});
  int ended = 0;
  cluster.run([&](Job& job, const auto& at_step) {
    const bool is_victim = job.rank() == 2;
    const auto dies = [&](long step) {
      at_step();
      if (!is_victim || step != 5) return;
      files->answers = 1;  // whether there is a checkpoint that is newer than what ranks have
      files->failures = 3;
      throw std::runtime_error("killed");
    };
    std::vector<long> firsts;
    EXPECT_EQ(train(cluster, job, {.sync = "zero3"}, dies, &firsts, storage::folder_storage(files)),
              expected);
    EXPECT_EQ(firsts.back(), 0) << "its shards are lost";
    ++ended;
  });
  EXPECT_EQ(ended, 2) << cluster.trouble();
  EXPECT_EQ(cluster.deaths(), 1) << cluster.trouble();
  EXPECT_EQ(files->failures, 0);
}

// The sum of all ranks' residuals.
std::vector<double> unsent(Strategy& strategy, Job& job) {
  std::vector<at::Tensor> residuals;
  for (const NamedShard& shard : strategy.own_state())
    if (shard.row_of_rank) residuals.push_back(shard.local.flatten().to(at::kDouble));
  const at::Tensor all = at::cat(residuals);
  std::vector<double> sum(all.const_data_ptr<double>(), all.const_data_ptr<double>() + all.numel());
  job.world().all_reduce(Buffer::of(std::span(sum)), ReduceOp::Sum, {.label = "unsent"}).wait();
  return sum;
}

TEST(ElasticTraining, RanksTakeOverWhatOthersHaveNotSent) {
  ElasticCluster cluster({.options = {.min = 2, .max = 4},
                          .ranks = 4,
                          .resizes = {{milliseconds(6), 2}, {milliseconds(14), 3}}});
  std::map<long, std::vector<double>> sums;  // after so many steps
  int taken_over = 0;
  cluster.run([&](Job& job, const auto& at_step) {
    run_elastic(job, [&] {
      Strategy strategy(cluster.context_of(job), model_of({}),
                        {.bucket_bytes = 1024, .compression = "topk:0.1"},
                        AdamW{.learning_rate = 0.01});
      Checkpointer checkpointer(job, ::testing::TempDir() + "none-" + std::to_string(getpid()),
                                {.every = 0, .lock = false});
      checkpointer.add("train", strategy);
      const long first = job.changes().epoch().number > 0 ? checkpointer.resume() : 0;
      if (first > 0) {
        const std::vector<double> now = unsent(strategy, job), &before = sums.at(first);
        double largest = 0;
        for (std::size_t i = 0; i < now.size(); ++i) {
          EXPECT_NEAR(now[i], before.at(i), 1e-5);
          largest = std::max(largest, std::abs(now[i]));
        }
        EXPECT_GT(largest, 0.01);
        ++taken_over;
      }
      for (long step = first; step < kSteps; ++step) {
        at_step();
        job.waiter()->sleep(milliseconds(3));
        strategy.step(batch_of(job, step), token_loss());
        sums[step + 1] = unsent(strategy, job);
        checkpointer.after(step);
      }
      return 0;
    });
  });
  EXPECT_EQ(cluster.epochs(), 3) << cluster.trouble();
  EXPECT_EQ(taken_over, 2 + 3);
}

TEST(ElasticTraining, WithoutCopiesRanksGoOnWithoutWhatALostOneHadNotSent) {
  ElasticCluster cluster({.options = {.min = 2, .max = 3, .restarts = 0}, .ranks = 3});
  std::vector<std::string> hashes;
  cluster.run([&](Job& job, const auto& at_step) {
    const bool is_victim = job.rank() == 2;
    const auto dies = [&](long step) {
      at_step();
      if (is_victim && step == 5) throw std::runtime_error("killed");
    };
    std::vector<long> firsts;
    hashes.push_back(train(cluster, job, {.compression = "topk:0.1"}, dies, &firsts));
    EXPECT_EQ(firsts.back(), 5) << "repeats steps";
  });
  ASSERT_EQ(hashes.size(), 2u) << cluster.trouble();
  EXPECT_EQ(hashes[0], hashes[1]);
}

TEST(ElasticTraining, GrowsAndShrinksBetweenSteps) {
  const std::string expected = undisturbed();
  for (const char* sync : {"plain", "zero3"}) {
    ElasticCluster cluster({.options = {.min = 1, .max = 4},
                            .ranks = 2,
                            .resizes = {{milliseconds(2), 4},
                                        {milliseconds(14), 3},
                                        {milliseconds(18), 1},
                                        {milliseconds(22), 2}}});
    int ended = 0;
    std::map<long, int> steps;  // how often rank 0 has computed each
    cluster.run([&](Job& job, const auto& at_step) {
      const auto slowly = [&](long step) {
        steps[step] += job.rank() == 0;
        at_step();
        job.waiter()->sleep(milliseconds(3));
      };
      EXPECT_EQ(train(cluster, job, {.sync = sync}, slowly), expected) << sync;
      EXPECT_EQ(job.size(), 2);
      ++ended;
    });
    EXPECT_EQ(ended, 2);
    EXPECT_EQ(cluster.deaths(), 0) << cluster.trouble();
    EXPECT_GE(cluster.epochs(), 5);
    for (const auto& [step, times] : steps) EXPECT_EQ(times, 1) << sync << ", step " << step;
  }
}

}  // namespace
}  // namespace trireme::train_test
