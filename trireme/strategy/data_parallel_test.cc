#include "trireme/strategy/data_parallel.h"

#include <ATen/Functions.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/optim/adagrad.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/sgd.h>

#include <algorithm>
#include <functional>
#include <future>
#include <memory>

#include "trireme/base/error.h"
#include "trireme/base/waiter.h"
#include "trireme/strategy/data_parallel_test.h"
#include "trireme/strategy/shares.h"
#include "trireme/sync/strategy_context.h"
#include "trireme/testing/run_ranks.h"

namespace trireme::data_parallel_test {
namespace {

std::string train_on(int ranks, const Setting& setting, int epochs = 2) {
  std::vector<std::string> hashes(static_cast<std::size_t>(ranks));
  testing::run_ranks(ranks, [&](testing::RankContext& rank) {
    auto plan = std::make_shared<Plan>(
        setting.samples, setting.batch, setting.micro, rank.rank,
        assignment_of(setting.options.sync, rank.size, setting.options.shares));
    parallel::StrategyContext env{.world = rank.world.get()};
    env.input->set_plan(plan);
    // Other ranks start with other random numbers, which rank 0's must replace.
    at::manual_seed(setting.seed + static_cast<std::uint64_t>(rank.rank));
    Net net(setting.norm, setting.dropout, setting.width);
    const auto optimizer = optimizer_of(setting.optimizer, net);
    DataParallel parallel(env, net, *optimizer, setting.options);
    std::int64_t applied = 0;
    for (int epoch = 0; epoch < epochs; ++epoch) {
      for (const auto& [first, count] : plan->loader()) {
        const at::Tensor loss = mean_loss(net, first, count);
        if (setting.by_token) {
          parallel.backward(loss * static_cast<double>(count), count);
        } else {
          loss.backward();
        }
        if (first % 2 == 0) optimizer->zero_grad(first % 4 == 0);  // must change nothing
        applied += parallel.step() ? 1 : 0;
        if (setting.scheduled)
          optimizer->param_groups()[0].options().set_lr(1e-2 /
                                                        static_cast<double>(1 + parallel.steps()));
      }
      plan->next_epoch();
    }
    EXPECT_GT(applied, 0);
    EXPECT_EQ(parallel.steps(), epochs * ((setting.samples + setting.batch - 1) / setting.batch));
    hashes[static_cast<std::size_t>(rank.rank)] = parallel.weights_hash();
  });
  for (const std::string& hash : hashes) EXPECT_EQ(hash, hashes[0]);
  return hashes[0];
}

TEST(DataParallel, AShortLastBatchEndsWithTheSameBitsOnAnyNumberOfRanks) {
  const std::string one = train_on(1, {});
  // The last batch has two micro-batches, so one of three ranks has no share of it.
  for (int ranks : {2, 3, 4}) EXPECT_EQ(train_on(ranks, {}), one) << ranks << " ranks";
  EXPECT_NE(train_on(1, {.seed = 4}), one);
}

TEST(DataParallel, SharesChangeNoBit) {
  const std::string one = train_on(1, {});
  for (const char* sync : {"plain", "zero1"}) {
    EXPECT_EQ(train_on(2, {.options = {.sync = sync, .shares = "3:1"}}), one) << sync;
    EXPECT_EQ(train_on(2, {.options = {.sync = sync, .shares = "1:2"}}), one) << sync;
    EXPECT_EQ(train_on(3, {.options = {.sync = sync, .shares = "2:1:3"}}), one) << sync;
  }
}

// A rank without a share of the last batch takes part in it before its loop has set the rate.
TEST(DataParallel, ARateForEachBatchIsThatOfTheRanksWithAShare) {
  for (const char* sync : {"plain", "zero1", "zero2"}) {
    const Setting setting{.scheduled = true, .options = {.sync = sync, .bucket_bytes = 256}};
    const std::string one = train_on(1, setting);
    for (const int ranks : {2, 3, 4}) EXPECT_EQ(train_on(ranks, setting), one) << sync << ranks;
  }
}

// Backward passes run on a thread of their own, which may not wait: the simulated network lets only
// a rank's own thread wait. Eight micro-batches a rank need memory that ranks allocate together.
TEST(DataParallel, AHookWaitsForNothing) {
  for (const char* sync : {"plain", "zero1", "zero2"}) {
    testing::run_ranks(2, [&](testing::RankContext& rank) {
      auto plan = std::make_shared<Plan>(16, 16, 1, rank.rank, assignment_of(sync, rank.size));
      parallel::StrategyContext env{.world = rank.world.get()};
      env.input->set_plan(plan);
      Net net;
      torch::optim::SGD sgd(net.parameters(), torch::optim::SGDOptions(1e-2));
      DataParallel parallel(env, net, sgd, {.sync = sync});
      for (const auto& [first, count] : plan->loader()) {
        std::async(std::launch::async, [&net, first = first, count = count] {
          mean_loss(net, first, count).backward();
        }).get();
        parallel.step();
      }
      EXPECT_EQ(parallel.steps(), 1) << sync;
    });
  }
}

// Every optimizer that ZeRO supports, with clipping and parameters of several uneven chunks.
TEST(DataParallel, ZeroEndsWithTheSameBits) {
  for (const char* optimizer : {"sgd", "adam", "adamw", "rmsprop", "adagrad"}) {
    Setting setting{.samples = 14,  // a short last batch: two micro-batches
                    .batch = 10,
                    .micro = 2,
                    .norm = true,
                    .dropout = 0.1,
                    .width = 1501,
                    .optimizer = optimizer};
    setting.options = {.clip = 0.5, .bucket_bytes = 20000};
    const std::string one = train_on(1, setting, 1);
    for (const char* sync : {"zero1", "zero2"}) {
      setting.options.sync = sync;
      for (int ranks : {1, 2, 3, 4})
        EXPECT_EQ(train_on(ranks, setting, 1), one)
            << sync << " with " << optimizer << " on " << ranks << " ranks";
    }
  }
}

TEST(DataParallel, GivesTheOptimizerItsPartsAndTakesThemBack) {
  testing::run_ranks(2, [&](testing::RankContext& rank) {
    Net net(false, 0, 3000);
    torch::optim::Adagrad adagrad(net.parameters(), torch::optim::AdagradOptions(1e-2));
    std::int64_t whole = 0, part = 0;
    for (const auto& parameter : net.parameters()) whole += parameter.numel();
    {
      DataParallel parallel(parallel::StrategyContext{.world = rank.world.get()}, net, adagrad,
                            {.sync = "zero1"});
      for (const auto& group : adagrad.param_groups())
        for (const at::Tensor& parameter : group.params()) part += parameter.numel();
      EXPECT_NEAR(static_cast<double>(part), static_cast<double>(whole) / 2, 4096);
      mean_loss(net, rank.rank, 1).backward();
      EXPECT_TRUE(parallel.step());
    }
    EXPECT_EQ(adagrad.param_groups()[0].params().size(), net.parameters().size());
    mean_loss(net, 0, 1).backward();
    adagrad.step();  // works as without DataParallel
  });
}

// A group's options, not the optimizer's defaults, say what state its parameters have.
TEST(DataParallel, CutsTheStateOfGroupsWhoseOptionsAreNotTheDefaults) {
  using torch::optim::Adam, torch::optim::AdamOptions, torch::optim::SGD, torch::optim::SGDOptions;
  const auto momentum = [](Net& net) -> std::unique_ptr<torch::optim::Optimizer> {
    auto sgd = std::make_unique<SGD>(net.parameters(), SGDOptions(1e-2));
    static_cast<SGDOptions&>(sgd->param_groups()[0].options()).momentum(0.9);
    return sgd;
  };
  const auto adam = [](bool by_default) {
    return [by_default](Net& net) -> std::unique_ptr<torch::optim::Optimizer> {
      auto one = std::make_unique<Adam>(net.parameters(), AdamOptions(1e-2).amsgrad(by_default));
      static_cast<AdamOptions&>(one->param_groups()[0].options()).amsgrad(!by_default);
      return one;
    };
  };
  using Make = std::function<std::unique_ptr<torch::optim::Optimizer>(Net&)>;
  for (const Make& make : {Make(momentum), Make(adam(false)), Make(adam(true))}) {
    const auto trained = [&](const std::string& sync) {
      std::string hash;
      testing::run_ranks(2, [&](testing::RankContext& rank) {
        at::manual_seed(3);
        Net net(false, 0, 3000);
        const auto optimizer = make(net);
        for (std::int64_t first : {0, 2}) {  // before DataParallel, alike on all ranks
          mean_loss(net, first, 2).backward();
          optimizer->step();
          optimizer->zero_grad();
        }
        DataParallel parallel(parallel::StrategyContext{.world = rank.world.get()}, net, *optimizer,
                              {.sync = sync});
        mean_loss(net, 4 + rank.rank, 1).backward();
        EXPECT_TRUE(parallel.step());
        hash = parallel.weights_hash();
      });
      return hash;
    };
    const std::string plain = trained("plain");
    EXPECT_EQ(trained("zero1"), plain);
    EXPECT_EQ(trained("zero2"), plain);
  }
}

TEST(DataParallel, UnequalMicroBatchesAreWeightedBySamples) {
  const Setting setting{.samples = 23, .batch = 8, .micro = 3};
  const std::string one = train_on(1, setting);
  for (int ranks : {2, 3}) EXPECT_EQ(train_on(ranks, setting), one) << ranks << " ranks";
}

TEST(DataParallel, DropoutDoesNotSeeTheRanks) {
  const Setting setting{.samples = 12, .dropout = 0.5};
  const std::string one = train_on(1, setting);
  for (int ranks : {2, 3, 4}) EXPECT_EQ(train_on(ranks, setting), one) << ranks << " ranks";
  EXPECT_NE(train_on(1, {.samples = 12, .dropout = 0.25}), one);
}

// The second batch of each epoch is refused: a loop may go on, also where the next batch, the last, has
// no share for a rank.
TEST(DataParallel, ALoopThatGoesOnAfterARefusedBatchDoesNotSeeTheRanks) {
  const auto trained = [](int ranks, bool norm) {
    std::string hash;
    testing::run_ranks(ranks, [&](testing::RankContext& rank) {
      auto plan = std::make_shared<Plan>(20, 8, 2, rank.rank, assignment_of("plain", rank.size));
      parallel::StrategyContext env{.world = rank.world.get()};
      env.input->set_plan(plan);
      at::manual_seed(3);
      Net net(norm, 0.5);
      torch::optim::SGD sgd(net.parameters(), torch::optim::SGDOptions(0.1));
      DataParallel parallel(env, net, sgd);
      int refused = 0;
      for (int epoch = 0; epoch < 2; ++epoch) {
        for (const auto& [first, count] : plan->loader()) {
          at::Tensor loss = mean_loss(net, first, count);
          if (first >= 8 && first < 16) loss = loss * std::nan("");
          loss.backward();
          try {
            parallel.step();
          } catch (const StepRefused&) {
            ++refused;
            // A rank without a share of the last batch has taken part in it.
            EXPECT_EQ(parallel.all_ranks_return(), ranks <= 2 || !plan->peek());
          }
        }
        plan->next_epoch();
      }
      EXPECT_EQ(refused, 2);
      if (rank.rank == 0) hash = parallel.weights_hash();
    });
    return hash;
  };
  for (const bool norm : {false, true}) {
    const std::string one = trained(1, norm);
    for (int ranks : {2, 3, 4}) EXPECT_EQ(trained(ranks, norm), one) << ranks << " ranks " << norm;
  }
}

TEST(DataParallel, BatchNormKeepsItsRunningStatisticsOnAnyNumberOfRanks) {
  const Setting setting{.samples = 26, .batch = 12, .micro = 3, .norm = true};
  const std::string one = train_on(1, setting);
  for (int ranks : {2, 3, 4}) EXPECT_EQ(train_on(ranks, setting), one) << ranks << " ranks";
}

// A batch norm may also run in the step of another DataParallel, as a generator's does in that of its
// discriminator.
TEST(DataParallel, BatchNormOfAnotherStepKeepsItsRunningStatistics) {
  testing::run_ranks(2, [](testing::RankContext& rank) {
    const parallel::StrategyContext env{.world = rank.world.get()};
    Net net(true), later(true);
    const auto optimizer = optimizer_of("sgd", net), of_later = optimizer_of("sgd", later);
    DataParallel parallel(env, net, *optimizer), after(env, later, *of_later);
    const at::Tensor x = samples(4 * rank.rank, 4).first;
    const auto counted = [](const Net& one) {
      return one.norm->num_batches_tracked.item<std::int64_t>();
    };
    std::int64_t micro_batches = 0;  // of both ranks
    for (const bool one_loss : {false, true, false}) {
      micro_batches += 2;
      at::Tensor loss = net.forward(x).pow(2).mean();
      if (one_loss) loss = loss + later.forward(x).pow(2).mean();
      loss.backward();
      EXPECT_TRUE(parallel.step());
      const at::Tensor mean = net.norm->running_mean.clone();
      const std::string hash = parallel.weights_hash();
      net.forward(2 * x);
      EXPECT_EQ(parallel.weights_hash(), hash);
      net.forward(2 * x);
      if (!one_loss) later.forward(x).pow(2).mean().backward();
      EXPECT_TRUE(after.step());
      EXPECT_TRUE(net.norm->running_mean.equal(mean));
      EXPECT_EQ(counted(net), micro_batches);
      EXPECT_EQ(counted(later), micro_batches);
    }
  });
}

TEST(DataParallel, BatchNormOfOneRankIsWhatLibTorchComputes) {
  testing::run_ranks(1, [&](testing::RankContext& rank) {
    at::manual_seed(1);
    Net ours(true);
    at::manual_seed(1);
    Net theirs(true);
    torch::optim::SGD optimizer(ours.parameters(), torch::optim::SGDOptions(0.0));
    {
      DataParallel parallel(parallel::StrategyContext{.world = rank.world.get()}, ours, optimizer);
      for (int step = 0; step < 3; ++step) {
        mean_loss(ours, 4 * step, 4).backward();
        parallel.step();
        mean_loss(theirs, 4 * step, 4).backward();
      }
    }
    EXPECT_TRUE(at::allclose(ours.norm->running_mean, theirs.norm->running_mean, 1e-6, 1e-7));
    EXPECT_TRUE(at::allclose(ours.norm->running_var, theirs.norm->running_var, 1e-6, 1e-7));
    EXPECT_EQ(ours.norm->num_batches_tracked.item<std::int64_t>(), 3);
    EXPECT_EQ(ours.norm->options.momentum(), 0.1);
  });
}

TEST(DataParallel, ASummedLossWithItsCountIsTheSameTraining) {
  EXPECT_EQ(train_on(2, {.by_token = true}), train_on(1, {.by_token = true}));
}

TEST(DataParallel, OneRankIsTheOrdinaryProgram) {
  testing::run_ranks(1, [&](testing::RankContext& rank) {
    at::manual_seed(1);
    Net ours;
    at::manual_seed(1);
    Net theirs;
    torch::optim::AdamW mine(ours.parameters(), torch::optim::AdamWOptions(1e-2));
    torch::optim::AdamW plain(theirs.parameters(), torch::optim::AdamWOptions(1e-2));
    DataParallel parallel(parallel::StrategyContext{.world = rank.world.get()}, ours, mine);
    for (int step = 0; step < 5; ++step) {
      mean_loss(ours, 4 * step, 4).backward();
      EXPECT_TRUE(parallel.step());
      mean_loss(theirs, 4 * step, 4).backward();
      plain.step();
      plain.zero_grad();
    }
    EXPECT_TRUE(at::equal(ours.first->weight, theirs.first->weight));
    EXPECT_TRUE(at::equal(ours.second->bias, theirs.second->bias));
  });
}

// The results of all global batches, which must be equal on all ranks. They include short batches,
// of which some ranks have no share.
std::vector<BatchResult> results_on(int ranks, const Setting& setting, bool tells_loss = true) {
  std::vector<std::vector<BatchResult>> all(static_cast<std::size_t>(ranks));
  testing::run_ranks(ranks, [&](testing::RankContext& rank) {
    auto plan = std::make_shared<Plan>(setting.samples, setting.batch, setting.micro, rank.rank,
                                       assignment_of(setting.options.sync, rank.size));
    parallel::StrategyContext env{.world = rank.world.get()};
    env.input->set_plan(plan);
    at::manual_seed(setting.seed);
    Net net;
    const auto optimizer = optimizer_of(setting.optimizer, net);
    DataParallel parallel(env, net, *optimizer, setting.options);
    auto& own = all[static_cast<std::size_t>(rank.rank)];
    for (const auto& [first, count] : plan->loader()) {
      if (rank.rank == 0) rank.waiter->sleep(std::chrono::seconds(1));
      const at::Tensor loss = mean_loss(net, first, count);
      if (!tells_loss) {
        loss.backward();
      } else if (setting.by_token) {
        parallel.backward(loss * static_cast<double>(7 * count), 7 * count);
      } else {
        parallel.backward(loss);
      }
      const bool ended = parallel.step();
      const std::vector<BatchResult> results = parallel.take_results();
      EXPECT_EQ(!results.empty(), ended);
      own.insert(own.end(), results.begin(), results.end());
      EXPECT_TRUE(parallel.take_results().empty());
    }
  });
  for (const auto& own : all) {
    EXPECT_EQ(own.size(), all[0].size());
    for (std::size_t i = 0; i < std::min(own.size(), all[0].size()); ++i) {
      EXPECT_EQ(own[i].loss, all[0][i].loss);
      EXPECT_EQ(own[i].gradient_norm, all[0][i].gradient_norm);
      EXPECT_EQ(own[i].count, all[0][i].count);
      EXPECT_GE(own[i].communication, Duration::zero());
    }
  }
  for (std::size_t rank = 1; rank < all.size(); ++rank)
    EXPECT_GE(all[rank].at(0).communication, std::chrono::seconds(1)) << "it waits for rank 0";
  EXPECT_LT(all[0].at(0).communication, std::chrono::seconds(1));
  return all[0];
}

TEST(DataParallel, TellsTheGlobalMeanOfEveryBatchOnEveryRank) {
  for (const char* sync : {"plain", "zero1", "zero2"}) {
    for (const bool by_token : {false, true}) {
      Setting setting{.by_token = by_token, .options = {.sync = sync, .clip = 0.5}};
      const std::vector<BatchResult> one = results_on(1, setting);
      ASSERT_EQ(one.size(), 3u);
      for (const int ranks : {2, 3, 4}) {
        const std::vector<BatchResult> results = results_on(ranks, setting);
        ASSERT_EQ(results.size(), one.size()) << sync << " on " << ranks;
        for (std::size_t i = 0; i < one.size(); ++i) {
          EXPECT_EQ(results[i].count, (i == 2 ? 2 : 4) * (by_token ? 7 : 1));
          EXPECT_NEAR(results[i].loss.value(), one[i].loss.value(), 1e-12);
          EXPECT_EQ(results[i].gradient_norm, one[i].gradient_norm);
          EXPECT_GT(results[i].gradient_norm.value(), 0);
          EXPECT_EQ(results[i].learning_rate, 1e-2);
          EXPECT_EQ(results[i].skipped, "");
        }
      }
    }
  }
}

TEST(DataParallel, DoesNotTellWhatItDoesNotKnow) {
  for (const int ranks : {1, 2}) {
    const std::vector<BatchResult> results = results_on(ranks, {}, /*tells_loss=*/false);
    ASSERT_EQ(results.size(), 3u);
    for (const BatchResult& result : results) {
      EXPECT_EQ(result.loss, std::nullopt);
      EXPECT_EQ(result.gradient_norm, std::nullopt);
      EXPECT_TRUE(result.count.has_value());
    }
  }
  testing::run_ranks(2, [&](testing::RankContext& rank) {  // without a Sampler
    Net net;
    torch::optim::SGD sgd(net.parameters(), torch::optim::SGDOptions(0.25));
    DataParallel parallel(parallel::StrategyContext{.world = rank.world.get()}, net, sgd);
    parallel.backward(mean_loss(net, rank.rank, 1));
    ASSERT_TRUE(parallel.step());
    const std::vector<BatchResult> results = parallel.take_results();
    ASSERT_EQ(results.size(), 1u);
    EXPECT_EQ(results[0].count, std::nullopt) << "micro-batches are no samples";
    EXPECT_TRUE(results[0].loss.has_value());
    EXPECT_EQ(results[0].learning_rate, 0.25);
  });
}

// Checks the order of calls, not times. Backward computes the first layer's gradient last.
TEST(DataParallel, ReducesTheFirstBucketBeforeBackwardHasEnded) {
  for (const int ranks : {2, 3}) {
    testing::run_ranks(ranks, [&](testing::RankContext& rank) {
      std::vector<std::string> calls;
      parallel::StrategyContext env{.world = rank.world.get()};
      env.reduce = [&](comm::Communicator& world, std::span<const comm::Term> terms,
                       const kernel::LeafShares& leaves, Buffer out, std::string_view label) {
        calls.emplace_back(label);
        return parallel::tree_reduce(world, terms, leaves, std::move(out), label);
      };
      Net net;
      net.first->weight.register_hook([&](at::Tensor) { calls.emplace_back("last gradient"); });
      torch::optim::SGD sgd(net.parameters(), torch::optim::SGDOptions(0.1));
      // With 128 bytes, each parameter except the biases has its own bucket.
      DataParallel parallel(env, net, sgd, {.bucket_bytes = 128});
      for (int step = 0; step < 3; ++step) {
        calls.clear();
        mean_loss(net, 4 * step + rank.rank, 1).backward();
        const auto last = std::find(calls.begin(), calls.end(), "last gradient");
        ASSERT_NE(last, calls.end());
        // The first step learns the order in which buckets become ready.
        EXPECT_GE(last - calls.begin(), step > 0 ? 1 : 0) << "no bucket was launched before it";
        EXPECT_TRUE(parallel.step());
      }
    });
  }
}

}  // namespace
}  // namespace trireme::data_parallel_test
