#include "trireme/strategy/shares.h"

#include <ATen/Functions.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <functional>

#include "trireme/base/error.h"
#include "trireme/models/models.h"
#include "trireme/optim/optimizer.h"
#include "trireme/sync/strategy_context.h"
#include "trireme/tensor/random.h"
#include "trireme/testing/run_ranks.h"

namespace trireme::shares_test {
namespace {

using namespace std::chrono_literals;
using parallel::RankTime;
using parallel::ShareBalance;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Counts = std::vector<std::uint32_t>;

constexpr std::uint32_t kMicroBatches = 16;

std::string refusal(const std::function<void()>& body) {
  try {
    body();
  } catch (const Error& error) {
    return error.what();
  }
  return "accepted";
}

TEST(Shares, AreReadFromTheKey) {
  EXPECT_TRUE(parallel::parse_shares("equal").weights.empty());
  EXPECT_TRUE(parallel::parse_shares("auto").automatic);
  EXPECT_THAT(parallel::parse_shares("3:2:1").weights, ElementsAre(3, 2, 1));
  EXPECT_THAT(parallel::parse_shares("5").weights, ElementsAre(5));
  for (const char* wrong : {"", "3:", ":3", "3::1", "0:1", "-1:2", "1.5:2", "3 2 1", "1000001:1",
                            "Auto", "99999999999999999999:1"})
    EXPECT_THAT(refusal([&] { parallel::parse_shares(wrong); }), HasSubstr("such as 3:2:1"))
        << wrong;
}

TEST(Shares, OfPlansThatCannotHaveThemAreRefused) {
  const auto set = [](const std::string& sync, const std::string& shares, int ranks, int copies) {
    return refusal([&] {
      parallel::SyncPlan plan = parallel::plan_sync(sync, copies, 0, 1);
      parallel::set_shares(plan, shares, ranks);
    });
  };
  EXPECT_EQ(set("plain", "3:1", 2, 2), "accepted");
  EXPECT_EQ(set("zero1", "auto", 4, 4), "accepted");
  EXPECT_EQ(set("zero3", "equal", 4, 4), "accepted");
  EXPECT_THAT(set("zero2", "3:1", 2, 2), HasSubstr("go through micro-batches together"));
  EXPECT_THAT(set("local_sgd", "auto", 2, 2), HasSubstr("parallel.sync = \"local_sgd\""));
  EXPECT_THAT(set("server", "3:1", 2, 2), HasSubstr("parallel.sync = \"server\""));
  EXPECT_THAT(set("plain", "3:1", 4, 2), HasSubstr("several ranks compute a micro-batch together"));
  EXPECT_THAT(set("plain", "3:1", 3, 3), HasSubstr("has 2 weights, but the job has 3 ranks"));
  EXPECT_THAT(refusal([] {
                parallel::check_shares_of({.weights = {1, 100}}, 16);
              }),
              HasSubstr("gives rank 0 none of the 16 micro-batches"));
}

TEST(Shares, BestCountsEndAsEarlyAsAnyDivision) {
  const std::vector<double> seconds = {0.01, 0.013, 0.03};
  for (std::uint32_t total = 3; total < 20; ++total) {
    const auto end_of = [&](std::uint32_t a, std::uint32_t b, std::uint32_t c) {
      return std::max({seconds[0] * a, seconds[1] * b, seconds[2] * c});
    };
    double best = 1e9;
    for (std::uint32_t a = 1; a + 2 <= total; ++a)
      for (std::uint32_t b = 1; a + b + 1 <= total; ++b)
        best = std::min(best, end_of(a, b, total - a - b));
    const Counts counts = parallel::best_counts(seconds, total);
    EXPECT_EQ(counts[0] + counts[1] + counts[2], total);
    EXPECT_DOUBLE_EQ(end_of(counts[0], counts[1], counts[2]), best) << total;
  }
  EXPECT_THAT(parallel::best_counts(std::vector{0.01, 100.0}, 5), ElementsAre(4, 1));
}

TEST(Shares, TheRankThatWasBusiestCameLast) {
  const std::vector<RankTime> times = {
      {.busy = 10ms}, {.busy = 30ms}, {.busy = 12ms}, {.busy = 14ms}};
  const parallel::Arrival last = parallel::last_of(times);
  EXPECT_EQ(last.rank, 1);
  EXPECT_EQ(last.behind, 18ms);
  EXPECT_EQ(parallel::last_of(std::span(times).first(2)).behind, 20ms);
  EXPECT_EQ(parallel::last_of(std::span(times).first(1)).rank, -1);
}

// Steps in which rank r takes seconds[r] for a micro-batch. Returns the changes.
std::vector<ShareChange> observed(ShareBalance& balance, kernel::LeafShares& now,
                                  const std::vector<std::function<Duration(int step)>>& micro,
                                  int steps) {
  std::vector<ShareChange> changes;
  const int ranks = static_cast<int>(micro.size());
  for (int step = 0; step < steps; ++step) {
    std::vector<RankTime> times;
    for (int rank = 0; rank < ranks; ++rank) {
      const std::uint32_t count = now.of(ranks, rank).count;
      times.push_back(
          {.passes = count * micro[static_cast<std::size_t>(rank)](step), .micro_batches = count});
    }
    if (auto change = balance.observe(times, now)) {
      now.weights = change->shares;
      changes.push_back(*change);
    }
  }
  return changes;
}

TEST(ShareBalance, ChangesOnceForARankThatIsSlower) {
  ShareBalance balance;
  kernel::LeafShares now(kMicroBatches);
  const auto constant = [](Duration time) { return [time](int) { return time; }; };
  const auto changes =
      observed(balance, now, {constant(10ms), constant(10ms), constant(30ms)}, 100);
  ASSERT_EQ(changes.size(), 1u);
  EXPECT_THAT(changes[0].shares, ElementsAre(7, 7, 2));
  EXPECT_EQ(changes[0].text(),
            "rank 2 computes a micro-batch in 30 ms, the others in 10 ms: shares 7 7 2 of 16, "
            "expected step 70 ms instead of 180 ms");
}

// A virtual clock on which ranks compute in no time.
TEST(ShareBalance, ChangesNothingWhereNothingTakesTime) {
  ShareBalance balance;
  kernel::LeafShares now(kMicroBatches);
  const auto none = [](int) { return Duration::zero(); };
  EXPECT_TRUE(observed(balance, now, {none, none, none, none}, 30).empty());
}

TEST(ShareBalance, DoesNotFlap) {
  ShareBalance balance;
  kernel::LeafShares now(kMicroBatches);
  // Every rank is slow now and then, by turns, and rank 1 is 5 % slower always.
  const auto changes =
      observed(balance, now,
               {[](int step) { return step % 3 == 0 ? Duration(50ms) : Duration(10ms); },
                [](int step) { return step % 3 == 1 ? Duration(50ms) : Duration(10500us); },
                [](int step) { return step % 3 == 2 ? Duration(50ms) : Duration(10ms); }},
               300);
  EXPECT_EQ(changes.size(), 0u);
}

TEST(ShareBalance, FollowsARankThatBecomesFastAgain) {
  ShareBalance balance;
  kernel::LeafShares now(kMicroBatches);
  const auto fast = [](int) { return Duration(10ms); };
  const auto changes =
      observed(balance, now,
               {fast, [](int step) { return step < 50 ? Duration(40ms) : Duration(10ms); }}, 100);
  ASSERT_EQ(changes.size(), 2u);
  EXPECT_THAT(changes[0].shares, ElementsAre(13, 3));
  EXPECT_THAT(changes[1].shares, ElementsAre(8, 8));
  EXPECT_THAT(changes[0].text(), HasSubstr("micro-batch in 10 ms, rank 1 in 40 ms"));
}

// Short batches tell less, and have other counts.
TEST(ShareBalance, CountsFullBatchesOnly) {
  ShareBalance balance;
  const std::vector<RankTime> full = {{.passes = 80ms, .micro_batches = 8},
                                      {.passes = 80ms, .micro_batches = 8}};
  const std::vector<RankTime> lopsided = {{.passes = 10ms, .micro_batches = 1},
                                          {.passes = 900ms, .micro_batches = 2}};
  for (int step = 0; step < 50; ++step) {
    EXPECT_FALSE(balance.observe(full, kMicroBatches));
    EXPECT_FALSE(balance.observe(lopsided, 3));
  }
}

Batch batch_of(std::int64_t step, int rank, const kernel::Assignment& assignment) {
  const std::uint32_t total = step % 5 == 4 ? 7 : kMicroBatches;
  Batch batch{.total = total, .global_count = total * 2, .step = step};
  for (const std::uint32_t index : leaves_of(assignment, total, rank)) {
    at::Tensor features = at::empty({2, 6}, at::kFloat);
    tensor::fill_uniform(features, 7, std::to_string(step) + "/" + std::to_string(index), -1, 1);
    batch.micro.push_back({.index = index, .count = 2, .fields = {{"features", features}}});
  }
  return batch;
}

struct Outcome {
  std::string hash;
  std::vector<double> losses;
  double validation = 0;
  friend bool operator==(const Outcome&, const Outcome&) = default;
};

struct Training {
  Outcome outcome;
  std::vector<Duration> steps;
  std::vector<int> last;
  std::vector<Duration> behind;
  std::vector<ShareChange> changes;
};

// A micro-batch of rank r takes micro[r] on the virtual clock.
Training train(testing::RankContext& rank, const StrategyOptions& options, int steps,
               const std::vector<Duration>& micro = {}) {
  kernel::Assignment assignment;
  parallel::StrategyContext env{.world = rank.world.get()};
  env.assign = [&](const kernel::Assignment& dealt) { assignment = dealt; };
  Strategy strategy(env, models::make_mlp({.widths = {6, 9, 5, 1}}), options,
                    optim::make_optimizer(AdamW{.learning_rate = 1e-2}));
  const Loss loss = [&](const models::Value& output, const MicroBatch&) {
    if (!micro.empty()) rank.waiter->sleep(micro[static_cast<std::size_t>(rank.rank)]);
    return output.at(0).square().sum();
  };
  Training run;
  for (int step = 0; step < steps; ++step) {
    const TimePoint start = rank.waiter->now();
    const StepResult result = strategy.step(batch_of(step, rank.rank, assignment), loss);
    run.outcome.losses.push_back(result.loss);
    run.steps.push_back(rank.waiter->now() - start);
    run.last.push_back(result.last_rank);
    run.behind.push_back(result.behind);
    if (result.share_change) run.changes.push_back(*result.share_change);
  }
  run.outcome.validation = strategy.evaluate({batch_of(100, rank.rank, assignment)}, loss);
  run.outcome.hash = strategy.weights_hash();
  return run;
}

Training train_on(int ranks, const StrategyOptions& options, int steps = 6,
                  const std::vector<Duration>& micro = {}, const std::string& algorithm = "auto") {
  std::vector<Training> runs(static_cast<std::size_t>(ranks));
  testing::run_ranks(ranks,
                     [&](testing::RankContext& rank) {
                       runs[static_cast<std::size_t>(rank.rank)] =
                           train(rank, options, steps, micro);
                     },
                     {.algorithm = algorithm});
  for (const Training& run : runs) {
    EXPECT_EQ(run.outcome, runs[0].outcome);
    EXPECT_EQ(run.last, runs[0].last);
    EXPECT_EQ(run.changes.size(), runs[0].changes.size());
  }
  return runs[0];
}

TEST(Shares, ChangeNoBit) {
  const Outcome one = train_on(1, {.clip = 0.5}).outcome;
  for (const char* sync : {"plain", "zero1"}) {
    for (const char* shares : {"3:1", "1:9", "3:2:1", "1:1:14", "7:7:2", "1:2:3:4", "20:1:5:3"}) {
      const int ranks = 1 + static_cast<int>(std::count(shares, shares + std::strlen(shares), ':'));
      for (const char* algorithm : {"auto", "ring", "tree"})
        EXPECT_EQ(train_on(ranks, {.sync = sync, .clip = 0.5, .bucket_bytes = 64, .shares = shares},
                           6, {}, algorithm)
                      .outcome,
                  one)
            << sync << ", " << shares << ", " << algorithm;
    }
  }
}

TEST(Shares, MayLeaveARankWithoutAMicroBatch) {
  const Outcome one = train_on(1, {}).outcome;
  for (const char* sync : {"plain", "zero1"})
    EXPECT_EQ(train_on(3, {.sync = sync, .shares = "1:99:1"}).outcome, one) << sync;
}

TEST(Shares, AddAsLeavesComeWhereItNeedNotBeReproducible) {
  const std::vector<double> one = train_on(1, {}).outcome.losses;
  testing::run_ranks(3,
                     [&](testing::RankContext& rank) {
                       const Training run = train(rank, {.shares = "1:9:1"}, 6);
                       for (std::size_t i = 0; i < one.size(); ++i)
                         EXPECT_NEAR(run.outcome.losses[i], one[i], 1e-4);
                     },
                     {.reproducible = false});
}

TEST(Shares, FollowTheSpeedOfTheRanks) {
  const std::vector<Duration> micro = {10ms, 10ms, 30ms};
  for (const char* sync : {"plain", "zero1"}) {
    const Training equal = train_on(3, {.sync = sync}, 20, micro);
    const Training balanced = train_on(3, {.sync = sync, .shares = "auto"}, 20, micro);
    EXPECT_EQ(balanced.outcome, equal.outcome);
    EXPECT_TRUE(equal.changes.empty());
    ASSERT_EQ(balanced.changes.size(), 1u);
    EXPECT_THAT(balanced.changes[0].shares, ElementsAre(7, 7, 2));
    EXPECT_THAT(balanced.changes[0].text(), HasSubstr("shares 7 7 2 of 16"));
    // The virtual clock is exact but for the time of messages.
    EXPECT_GE(equal.steps[18], 180ms);
    EXPECT_LT(balanced.steps[18], 75ms);
  }
}

// A rank compresses the sum of its share, so weights would depend on measured times.
TEST(Shares, ThatFollowTheRanksAreRefusedWithCompression) {
  for (const char* compression : {"auto", "bf16", "topk:0.1"})
    EXPECT_THAT(refusal([&] { train_on(2, {.compression = compression, .shares = "auto"}, 1); }),
                HasSubstr("batch.shares = \"auto\" cannot be combined with comm.compression"));
  train_on(2, {.compression = "bf16", .shares = "3:1"}, 1);
}

// Ranks of different speeds that compute different shares: none is late.
TEST(Shares, TheLastRankIsNamedInEveryStep) {
  const std::vector<Duration> micro = {10ms, 40ms, 10ms, 10ms};
  const Training run = train_on(4, {.clip = 0.5}, 4, micro);
  EXPECT_THAT(run.last, ElementsAre(1, 1, 1, 1));
  for (const Duration behind : run.behind) {
    EXPECT_GE(behind, 119ms);
    EXPECT_LE(behind, 121ms);
  }
}

}  // namespace
}  // namespace trireme::shares_test
