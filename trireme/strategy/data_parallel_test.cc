#include "trireme/strategy/data_parallel.h"

#include <ATen/Functions.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/adagrad.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/lbfgs.h>
#include <torch/optim/rmsprop.h>
#include <torch/optim/sgd.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <future>
#include <map>
#include <memory>
#include <set>

#include "trireme/base/error.h"
#include "trireme/base/waiter.h"
#include "trireme/kernel/assignment.h"
#include "trireme/strategy/shares.h"
#include "trireme/sync/strategy_context.h"
#include "trireme/tensor/random.h"
#include "trireme/testing/run_ranks.h"

namespace trireme::data_parallel_test {
namespace {

struct Net : torch::nn::Module {
  explicit Net(bool with_norm = false, double with_dropout = 0, std::int64_t width = 16)
      : dropout(with_dropout) {
    first = register_module("first", torch::nn::Linear(6, width));
    second = register_module("second", torch::nn::Linear(width, 3));
    unused = register_module("unused", torch::nn::Linear(2, 2));
    if (with_norm) norm = register_module("norm", torch::nn::BatchNorm1d(width));
  }
  at::Tensor forward(const at::Tensor& x) {
    at::Tensor hidden = first(x);
    if (norm) hidden = norm(hidden);
    hidden = at::gelu(hidden);
    if (dropout > 0) hidden = at::dropout(hidden, dropout, is_training());
    return second(hidden);
  }
  double dropout;
  torch::nn::Linear first{nullptr}, second{nullptr}, unused{nullptr};
  torch::nn::BatchNorm1d norm{nullptr};
};

// Deals out `samples` samples in order, in global batches of `batch` and micro-batches of `micro`,
// epoch by epoch.
class Plan final : public InputPlan {
 public:
  Plan(std::int64_t samples, std::int64_t batch, std::int64_t micro, int rank,
       const kernel::Assignment& assignment) {
    for (std::int64_t begin = 0; begin < samples; begin += batch, ++number_) {
      const std::int64_t global = std::min(batch, samples - begin);
      const auto total = static_cast<std::uint32_t>((global + micro - 1) / micro);
      const auto share = leaves_of(assignment, total, rank);
      const bool last = begin + batch >= samples;
      for (const std::uint32_t i : share) {
        const std::int64_t first = begin + i * micro;
        add({.index = i,
             .total = total,
             .samples = std::min(micro, begin + global - first),
             .last_of_batch = i == share.back()},
            first, global, last);
      }
      if (share.empty())
        add({.total = total, .has_data = false, .last_of_batch = true}, -1, global, last);
    }
  }
  std::optional<MicroStep> peek() override {
    if (position_ == steps_.size()) return std::nullopt;
    MicroStep step = steps_[position_];
    step.batch_number += epoch_ * number_;
    return step;
  }
  void consume() override { ++position_; }
  void next_epoch() {
    EXPECT_EQ(position_, steps_.size());
    position_ = 0;
    ++epoch_;
  }
  // (first sample, count) of each of this rank's micro-batches in one epoch.
  const std::vector<std::pair<std::int64_t, std::int64_t>>& loader() const { return loader_; }

 private:
  void add(MicroStep step, std::int64_t first, std::int64_t global, bool last) {
    step.global_samples = global;
    step.batch_number = number_;
    step.last_of_epoch = last;
    steps_.push_back(step);
    if (step.has_data) loader_.emplace_back(first, step.samples);
  }
  std::vector<MicroStep> steps_;
  std::vector<std::pair<std::int64_t, std::int64_t>> loader_;
  std::int64_t number_ = 0, epoch_ = 0;
  std::size_t position_ = 0;
};

std::pair<at::Tensor, at::Tensor> samples(std::int64_t first, std::int64_t count) {
  std::vector<at::Tensor> rows;
  for (std::int64_t i = first; i < first + count; ++i) {
    at::Tensor row = at::empty({6}, at::kFloat);
    tensor::fill_normal(row, 11, std::to_string(i), 0, 1);
    rows.push_back(row);
  }
  const at::Tensor x = at::stack(rows);
  return {x, x.narrow(1, 0, 3).abs()};
}

at::Tensor mean_loss(Net& net, std::int64_t first, std::int64_t count) {
  const auto [x, y] = samples(first, count);
  return (net.forward(x) - y).pow(2).mean(1).mean();
}

struct Setting {
  std::int64_t samples = 10, batch = 4, micro = 1;
  bool norm = false;
  double dropout = 0;
  bool by_token = false;
  bool scheduled = false;  // a learning rate for each batch
  std::uint64_t seed = 3;
  std::int64_t width = 16;
  std::string optimizer = "adamw";
  DataParallelOptions options = {.bucket_bytes = 256};
};

std::unique_ptr<torch::optim::Optimizer> optimizer_of(const std::string& name, Net& net) {
  using namespace torch::optim;
  const auto parameters = net.parameters();
  if (name == "sgd")
    return std::make_unique<SGD>(parameters, SGDOptions(1e-2).momentum(0.9).weight_decay(0.01));
  if (name == "adam") return std::make_unique<Adam>(parameters, AdamOptions(1e-2).amsgrad(true));
  if (name == "rmsprop")
    return std::make_unique<RMSprop>(parameters, RMSpropOptions(1e-3).momentum(0.5).centered(true));
  if (name == "adagrad")
    return std::make_unique<torch::optim::Adagrad>(parameters, AdagradOptions(1e-2));
  return std::make_unique<torch::optim::AdamW>(parameters, AdamWOptions(1e-2));
}

kernel::Assignment assignment_of(const std::string& sync, int ranks,
                                 const std::string& shares = "equal") {
  parallel::SyncPlan plan = parallel::plan_sync(sync, ranks, 0, 1);
  parallel::set_shares(plan, shares, ranks);
  return plan.assignment;
}

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

TEST(DataParallel, SharesThatItCannotHaveAreRefused) {
  testing::run_ranks(2, [](testing::RankContext& rank) {
    Net net;
    torch::optim::SGD sgd(net.parameters(), torch::optim::SGDOptions(1e-2));
    const auto made = [&](const DataParallelOptions& options) {
      return DataParallel({.world = rank.world.get()}, net, sgd, options);
    };
    EXPECT_THROW(made({.shares = "auto"}), ConfigError);
    EXPECT_THROW(made({.sync = "zero2", .shares = "2:1"}), ConfigError);
    EXPECT_THROW(made({.shares = "2:1:1"}), ConfigError);
    // Without a Sampler, each rank has one micro-batch.
    DataParallel parallel({.world = rank.world.get()}, net, sgd, {.shares = "1:9"});
    mean_loss(net, rank.rank, 1).backward();
    EXPECT_THROW(parallel.step(), ConfigError);
  });
}

// A Checkpointer of an elastic job asks for it at the start.
TEST(DataParallel, MetadataBeforeTheFirstStepChangeNothing) {
  testing::run_ranks(1, [](testing::RankContext& rank) {
    torch::nn::Linear net(2, 1);
    torch::optim::Adam adam(net->parameters(), 1e-2);
    DataParallel parallel({.world = rank.world.get()}, *net, adam);
    parallel.metadata();
    net->forward(at::ones({1, 2})).sum().backward();
    EXPECT_TRUE(parallel.step());
  });
}

// LibTorch's SGD takes the first gradient whole as its momentum, however large the dampening is. After
// a momentum of zero it would take a part of it.
TEST(DataParallel, AStateBeforeTheFirstStepChangesNoUpdate) {
  const auto trained = [](const std::string& sync, bool saved, bool resumed) {
    std::string hash;
    testing::run_ranks(2, [&](testing::RankContext& rank) {
      at::manual_seed(7);
      Net net;
      torch::optim::SGD sgd(net.parameters(),
                            torch::optim::SGDOptions(0.1).momentum(0.9).dampening(0.5));
      DataParallel parallel({.world = rank.world.get()}, net, sgd, {.sync = sync});
      if (saved || resumed) parallel.state();
      if (resumed) parallel.restored(parallel.metadata());
      for (int step = 0; step < 3; ++step) {
        mean_loss(net, 2 * step + rank.rank, 1).backward();
        parallel.step();
        if (saved) parallel.state();
      }
      if (rank.rank == 0) hash = parallel.weights_hash();
    });
    return hash;
  };
  for (const char* sync : {"plain", "zero1"}) {
    const std::string without = trained(sync, false, false);
    EXPECT_EQ(trained(sync, true, false), without) << sync;
    EXPECT_EQ(trained(sync, true, true), without) << sync;
  }
}

// Three batches per epoch. The third has two micro-batches, none of them for rank 0. Rank 0
// therefore takes part in the third batch inside the step() that ends the second.
TEST(DataParallel, KnowsWhereARankWithoutAShareDoesNotReturn) {
  testing::run_ranks(3, [&](testing::RankContext& rank) {
    auto plan = std::make_shared<Plan>(8, 3, 1, rank.rank, kernel::contiguous(3));
    parallel::StrategyContext env{.world = rank.world.get()};
    env.input->set_plan(plan);
    env.stop_signal = [] { return 143; };
    Net net;
    torch::optim::SGD sgd(net.parameters(), torch::optim::SGDOptions(1e-2));
    DataParallel parallel(env, net, sgd);
    std::vector<std::pair<std::int64_t, bool>> seen;  // steps done, all_ranks_return()
    for (int epoch = 0; epoch < 2; ++epoch) {
      for (const auto& [first, count] : plan->loader()) {
        mean_loss(net, first, count).backward();
        if (parallel.step()) seen.emplace_back(parallel.steps(), parallel.all_ranks_return());
      }
      plan->next_epoch();
    }
    const std::vector<std::pair<std::int64_t, bool>> with_share = {
        {1, true}, {2, false}, {3, true}, {4, true}, {5, false}, {6, true}};
    const std::vector<std::pair<std::int64_t, bool>> without = {
        {1, true}, {3, true}, {4, true}, {6, true}};
    EXPECT_EQ(seen, rank.rank > 0 ? with_share : without) << "rank " << rank.rank;
    EXPECT_EQ(parallel.stop_signal(), 143);
  });
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

// Ranks allocate together what their gradients take, which must not be the first difference that they see.
TEST(DataParallel, NamesTheParameterInWhichTheRanksModelsDiffer) {
  for (const bool frozen : {false, true}) {
    for (const char* sync : {"plain", "zero1", "zero2"}) {
      testing::run_ranks(2, [&](testing::RankContext& rank) {
        torch::nn::Linear net(100, frozen ? 100 : 100 + 50 * rank.rank);
        if (frozen && rank.rank == 1) net->weight.set_requires_grad(false);
        torch::optim::SGD sgd(net->parameters(), torch::optim::SGDOptions(1e-2));
        const parallel::StrategyContext env{.world = rank.world.get()};
        try {
          DataParallel(env, *net, sgd, {.sync = sync});
          FAIL() << sync;
        } catch (const MismatchError& error) {
          EXPECT_NE(std::string(error.what()).find("\"weight\" on this rank) differs"),
                    std::string::npos)
              << error.what();
        }
      });
    }
  }
}

// Resumes before the third batch: rank 0 takes part in it before its loop begins. So does one that
// takes the place of another DataParallel.
TEST(DataParallel, KnowsThatTheFirstBatchAfterAResumeMayHaveNoShareForARank) {
  for (const bool replaces : {false, true}) {
    testing::run_ranks(3, [&](testing::RankContext& rank) {
      auto plan = std::make_shared<Plan>(8, 3, 1, rank.rank, kernel::contiguous(3));
      for (int done = 0; done < 2; ++done) plan->consume();
      parallel::StrategyContext env{.world = rank.world.get()};
      env.input->set_plan(plan);
      Net net, other;
      torch::optim::SGD sgd(net.parameters(), torch::optim::SGDOptions(1e-2));
      torch::optim::SGD others(other.parameters(), torch::optim::SGDOptions(1e-2));
      std::unique_ptr<DataParallel> parallel;
      if (replaces) parallel = std::make_unique<DataParallel>(env, other, others);
      parallel = std::make_unique<DataParallel>(env, net, sgd);
      env.input->begin_pass();
      if (rank.rank > 0) {
        mean_loss(net, 5 + rank.rank, 1).backward();
        EXPECT_TRUE(parallel->step());
        EXPECT_FALSE(parallel->all_ranks_return());
      }
      plan->next_epoch();
      mean_loss(net, rank.rank, 1).backward();
      EXPECT_TRUE(parallel->step());
      EXPECT_TRUE(parallel->all_ranks_return());
      EXPECT_EQ(parallel->steps(), 2);
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

TEST(DataParallel, AStepOfTheOptimizerItselfIsCaughtAndNamedUnderZero) {
  for (const char* sync : {"zero1", "zero2"}) {
    testing::run_ranks(2, [&](testing::RankContext& rank) {
      Net net;
      torch::optim::AdamW adam(net.parameters(), torch::optim::AdamWOptions(1e-2));
      DataParallel parallel(parallel::StrategyContext{.world = rank.world.get()}, net, adam,
                            {.sync = sync});
      const auto refusal = [&](auto&& act) -> std::string {
        try {
          act();
        } catch (const ConfigError& error) {
          return error.what();
        }
        return "nothing was thrown";
      };
      mean_loss(net, 0, 1).backward();
      EXPECT_TRUE(parallel.step());
      const std::string before = parallel.weights_hash();
      adam.zero_grad();
      mean_loss(net, 1, 1).backward();
      adam.step();
      EXPECT_EQ(parallel.weights_hash(), before);
      // The error comes in the next step(), or in the next backward() if there is no step().
      EXPECT_NE(refusal([&] { parallel.step(); }).find("step() was called directly"),
                std::string::npos);
      EXPECT_NE(refusal([&] { mean_loss(net, 2, 1).backward(); }).find("parallel.step()"),
                std::string::npos);
    });
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

TEST(DataParallel, ALoopThatEndsEarlyIsNamedToTheOthers) {
  testing::run_ranks(3, [&](testing::RankContext& rank) {
    Net net;
    torch::optim::SGD sgd(net.parameters(), torch::optim::SGDOptions(0.1));
    DataParallel parallel(parallel::StrategyContext{.world = rank.world.get()}, net, sgd);
    const int mine = rank.rank == 2 ? 2 : 4;
    try {
      for (int step = 0; step < mine; ++step) {
        mean_loss(net, step, 1).backward();
        parallel.step();
      }
      EXPECT_EQ(rank.rank, 2);
    } catch (const UnevenInput& error) {
      EXPECT_NE(rank.rank, 2);
      EXPECT_EQ(error.peer(), 2);
      EXPECT_NE(std::string(error.what()).find("rank 2's loop ended"), std::string::npos);
    }
  });
}

TEST(DataParallel, RefusesTwoBackwardPassesInOneMicroBatchOnAllRanks) {
  testing::run_ranks(2, [&](testing::RankContext& rank) {
    Net net;
    torch::optim::SGD sgd(net.parameters(), torch::optim::SGDOptions(0.1));
    DataParallel parallel(parallel::StrategyContext{.world = rank.world.get()}, net, sgd);
    mean_loss(net, 0, 1).backward();
    if (rank.rank == 1) mean_loss(net, 0, 1).backward();
    EXPECT_THROW(parallel.step(), StepRefused);
    mean_loss(net, 0, 1).backward();
    EXPECT_TRUE(parallel.step());
  });
}

TEST(DataParallel, ANanIsRefusedNamingTheParameter) {
  testing::run_ranks(2, [&](testing::RankContext& rank) {
    Net net;
    torch::optim::SGD sgd(net.parameters(), torch::optim::SGDOptions(0.1));
    DataParallel parallel(parallel::StrategyContext{.world = rank.world.get()}, net, sgd);
    const std::string before = parallel.weights_hash();
    (mean_loss(net, 0, 1) * (rank.rank == 1 ? std::nan("") : 1.0)).backward();
    try {
      parallel.step();
      ADD_FAILURE() << "the step was applied";
    } catch (const StepRefused& error) {
      EXPECT_EQ(error.peer(), 1);
      EXPECT_NE(std::string(error.what()).find("second.bias"), std::string::npos) << error.what();
    }
    EXPECT_EQ(parallel.weights_hash(), before);
  });
}

// 2e38 is finite on every rank; the sum of two is not (FLT_MAX is 3.4e38).
TEST(DataParallel, AnOverflowThatOnlyTheSumHasIsRefusedOnAllRanks) {
  for (const int ranks : {2, 3, 5}) {
    for (const double clip : {0.0, 1.0}) {
      testing::run_ranks(ranks, [&](testing::RankContext& rank) {
        Net net(true);
        torch::optim::SGD sgd(net.parameters(), torch::optim::SGDOptions(0.1));
        DataParallel parallel(parallel::StrategyContext{.world = rank.world.get()}, net, sgd,
                              {.clip = clip});
        const std::string before = parallel.weights_hash();
        (net.second->bias * 2e38).sum().backward();
        try {
          parallel.step();
          ADD_FAILURE() << "the step was applied";
        } catch (const StepRefused& error) {
          EXPECT_NE(std::string(error.what()).find("second.bias"), std::string::npos)
              << error.what();
          EXPECT_EQ(error.exit_code(), 21);
        }
        EXPECT_EQ(parallel.weights_hash(), before);
        mean_loss(net, 0, 2).backward();
        EXPECT_TRUE(parallel.step());
        EXPECT_NE(parallel.weights_hash(), before);
      });
    }
  }
}

// Each rank's gradient is 40000; their sum is more than fp16 holds, and less than bf16 does.
TEST(DataParallel, ASumThatF16CannotHoldIsRefusedWithTheWayOut) {
  for (const std::string compression : {"f16", "bf16"}) {
    testing::run_ranks(2, [&](testing::RankContext& rank) {
      Net net;
      torch::optim::SGD sgd(net.parameters(), torch::optim::SGDOptions(1e-6));
      DataParallel parallel(parallel::StrategyContext{.world = rank.world.get()}, net, sgd,
                            {.compression = compression});
      (net.second->bias * 4e4).sum().backward();
      if (compression == "bf16") {
        EXPECT_TRUE(parallel.step());
        return;
      }
      try {
        parallel.step();
        ADD_FAILURE() << "the step was applied";
      } catch (const StepRefused& error) {
        EXPECT_NE(std::string(error.what()).find("If comm.compression is f16"), std::string::npos)
            << error.what();
      }
    });
  }
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

using MakeOptimizer = std::function<std::unique_ptr<torch::optim::Optimizer>(Net& net)>;

// Five steps at once, and three and two in another program that goes on from the first one's state.
// Returns the names of that state.
std::set<std::string> expect_equal_bits_after_a_resume(testing::RankContext& rank, double dropout,
                                                       const MakeOptimizer& make) {
  struct Program {
    Program(testing::RankContext& rank, double dropout, const MakeOptimizer& make)
        : net(false, dropout),
          optimizer(make(net)),
          parallel(parallel::StrategyContext{.world = rank.world.get()}, net, *optimizer) {}
    void run(int from, int to) {
      for (int step = from; step < to; ++step) {
        mean_loss(net, step, 1).backward();
        parallel.step();
      }
    }
    Net net;
    std::unique_ptr<torch::optim::Optimizer> optimizer;
    DataParallel parallel;
  };
  at::manual_seed(5);
  Program straight(rank, dropout, make);
  straight.run(0, 3);
  std::map<std::string, at::Tensor> saved;
  std::set<std::string> names;
  for (const NamedShard& shard : straight.parallel.state()) {
    saved[shard.name] = shard.local.clone();
    names.insert(shard.name);
  }
  const std::string metadata = straight.parallel.metadata();
  straight.run(3, 5);
  const std::string expected = straight.parallel.weights_hash();

  at::manual_seed(99);
  Program resumed(rank, dropout, make);
  for (const NamedShard& shard : resumed.parallel.state()) shard.local.copy_(saved.at(shard.name));
  resumed.parallel.restored(metadata);
  resumed.run(3, 5);
  EXPECT_EQ(resumed.parallel.weights_hash(), expected);
  return names;
}

TEST(DataParallel, ResumesFromItsStateWithEqualBits) {
  testing::run_ranks(2, [&](testing::RankContext& rank) {
    const auto names = expect_equal_bits_after_a_resume(rank, 0.5, [](Net& net) {
      return std::make_unique<torch::optim::AdamW>(net.parameters(),
                                                   torch::optim::AdamWOptions(1e-2).amsgrad(true));
    });
    EXPECT_TRUE(names.contains("optimizer/first.weight.max_exp_avg_sq"));
  });
}

// Gradients of the first layer are there, and nothing updates it: the second layer's updates count.
TEST(DataParallel, AnOptimizerOfTheLastLayerAloneGoesOn) {
  testing::run_ranks(1, [&](testing::RankContext& rank) {
    expect_equal_bits_after_a_resume(rank, 0, [](Net& net) {
      return std::make_unique<torch::optim::Adam>(net.second->parameters(),
                                                  torch::optim::AdamOptions(1e-2));
    });
  });
}

struct Strided : torch::nn::Module {
  Strided() {
    conv = register_module("conv", torch::nn::Conv2d(3, 4, 3));
    conv->weight.set_data(conv->weight.contiguous(at::MemoryFormat::ChannelsLast));
    scale = register_buffer("scale", at::ones({1}).expand({4}));
  }
  void run(DataParallel& parallel, double input) {
    const at::Tensor scaled = conv(at::full({2, 3, 5, 5}, input)) * scale.view({4, 1, 1});
    parallel.backward(scaled.pow(2).mean());
    EXPECT_TRUE(parallel.step());
  }
  torch::nn::Conv2d conv{nullptr};
  at::Tensor scale;
};

TEST(DataParallel, WeightsThatAreNotContiguousAreSavedAndResumed) {
  for (const char* sync : {"plain", "zero1"}) {
    testing::run_ranks(2, [&](testing::RankContext& rank) {
      at::manual_seed(5);
      Strided net, again;
      torch::optim::Adam adam(net.parameters(), 1e-2), second(again.parameters(), 1e-2);
      DataParallel parallel({.world = rank.world.get()}, net, adam, {.sync = sync});
      net.run(parallel, 1 + rank.rank);
      std::map<std::string, at::Tensor> saved;
      for (const NamedShard& shard : parallel.state()) {
        EXPECT_TRUE(shard.local.is_contiguous()) << shard.name;
        saved[shard.name] = shard.local.clone();
      }
      EXPECT_TRUE(saved.at("conv.weight").equal(net.conv->weight));
      const std::string metadata = parallel.metadata();
      net.run(parallel, 2);
      const std::string expected = parallel.weights_hash();

      DataParallel resumed({.world = rank.world.get()}, again, second, {.sync = sync});
      for (const NamedShard& shard : resumed.state()) {
        const at::Tensor& value = saved.at(shard.name);
        shard.load ? shard.load(value) : void(at::Tensor(shard.local).copy_(value));
      }
      resumed.restored(metadata);
      again.run(resumed, 2);
      EXPECT_EQ(resumed.weights_hash(), expected) << sync;
    });
  }
}

TEST(DataParallel, MarksWeightsThatAreNotTrained) {
  testing::run_ranks(1, [&](testing::RankContext& rank) {
    Net net;
    net.first->weight.requires_grad_(false);
    torch::optim::SGD sgd(net.parameters(), torch::optim::SGDOptions(0.1));
    DataParallel parallel(parallel::StrategyContext{.world = rank.world.get()}, net, sgd);
    std::vector<std::string> frozen;
    for (const NamedShard& shard : parallel.state())
      if (shard.frozen) frozen.push_back(shard.name);
    EXPECT_EQ(frozen, std::vector<std::string>{"first.weight"});
  });
}

TEST(DataParallel, RefusesWhatItCannotTrain) {
  testing::run_ranks(1, [&](testing::RankContext& rank) {
    const parallel::StrategyContext env{.world = rank.world.get()};
    Net net, other;
    torch::optim::SGD sgd(net.parameters(), torch::optim::SGDOptions(0.1));
    torch::optim::SGD foreign(other.parameters(), torch::optim::SGDOptions(0.1));
    torch::optim::LBFGS lbfgs(net.parameters());
    for (const char* sync : {"zero3", "hybrid", "local_sgd", "gossip"}) {
      try {
        DataParallel parallel(env, net, sgd, {.sync = sync});
        ADD_FAILURE() << sync;
      } catch (const ConfigError& error) {
        EXPECT_NE(std::string(error.what()).find("list of blocks"), std::string::npos);
      }
    }
    EXPECT_THROW(DataParallel(env, net, sgd, {.sync = "server"}), ConfigError);  // there is none
    for (const at::ScalarType type : {at::kBFloat16, at::kHalf}) {
      Net half;
      half.to(type);
      torch::optim::SGD halves(half.parameters(), torch::optim::SGDOptions(0.1));
      try {
        DataParallel parallel(env, half, halves, {.sync = "server"});
        ADD_FAILURE() << type;
      } catch (const ConfigError& error) {
        EXPECT_NE(std::string(error.what()).find("servers keep weights in fp32"), std::string::npos)
            << error.what();
      }
    }
    EXPECT_THROW(DataParallel(env, net, sgd, {.staleness = 1}), ConfigError);
    EXPECT_THROW(DataParallel(env, net, lbfgs, {.sync = "zero1"}), ConfigError);
    EXPECT_THROW(DataParallel(env, net, foreign), ConfigError);
    EXPECT_THROW(DataParallel(env, net, lbfgs), ConfigError);
  });
}

}  // namespace
}  // namespace trireme::data_parallel_test
