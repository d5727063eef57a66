// Training with parameter servers, on the simulated network.
#include <ATen/Functions.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/adagrad.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/sgd.h>

#include <array>
#include <atomic>
#include <cmath>
#include <map>
#include <optional>
#include <type_traits>

#include "trireme/base/error.h"
#include "trireme/models/models.h"
#include "trireme/ps/worker/remote_optimizer.h"
#include "trireme/strategy/data_parallel.h"
#include "trireme/strategy/server_training_test.h"
#include "trireme/strategy/strategy.h"
#include "trireme/strategy/strategy_test.h"
#include "trireme/sync/strategy_context.h"
#include "trireme/testing/run_ranks.h"

namespace trireme::server_training_test {
namespace {

using testing::run_with_servers;

using strategy_test::batch_of;
using strategy_test::tiny_gpt;

struct Outcome {
  std::string hash;
  std::vector<double> losses, norms;
  std::map<std::string, double> state;  // the sum of each tensor of a checkpoint
  friend bool operator==(const Outcome&, const Outcome&) = default;
};

std::map<std::string, double> sums_of(Strategy& strategy) {
  std::map<std::string, double> sums;
  for (const NamedShard& shard : strategy.state())
    sums[shard.name] = shard.local.to(at::kDouble).sum().item<double>();
  return sums;
}

Outcome train(const parallel::StrategyContext& context, int rank, const StrategyOptions& options,
              const OptimizerOptions& optimizer, int steps) {
  kernel::Assignment assignment;
  parallel::StrategyContext env = context;
  env.assign = [&](const kernel::Assignment& dealt) { assignment = dealt; };
  Strategy strategy(env, tiny_gpt(options.precision), options, optimizer);
  Outcome outcome;
  for (int step = 0; step < steps; ++step) {
    const std::uint32_t total = step % 3 == 2 ? 5 : 9;  // a short batch now and then
    const StepResult result = strategy.step(batch_of(step, total, rank, assignment), token_loss());
    outcome.losses.push_back(result.loss);
    outcome.norms.push_back(result.gradient_norm.value_or(0));
  }
  outcome.state = sums_of(strategy);
  outcome.hash = strategy.weights_hash();
  return outcome;
}

TEST(ServerTraining, SynchronousStepsHaveTheBitsOfPlainDataParallel) {
  const OptimizerOptions optimizers[] = {
      AdamW{.learning_rate = 1e-2}, Sgd{.learning_rate = 0.1, .momentum = 0.9, .nesterov = true},
      Adagrad{.learning_rate = 0.05}, Ftrl{.learning_rate = 0.05}};
  for (const char* precision : {"fp32", "bf16", "fp16", "fp64"}) {
    for (const OptimizerOptions& optimizer : optimizers) {
      Outcome plain;
      testing::run_ranks(1, [&](testing::RankContext& rank) {
        plain = train({.world = rank.world.get()}, 0, {.precision = precision, .clip = 0.5},
                      optimizer, 6);
      });
      for (const auto& [workers, servers] : {std::pair{1, 1}, {2, 1}, {3, 2}, {4, 3}})
        run_with_servers(
            workers, servers,
            [&](int worker, const parallel::StrategyContext& env) {
              EXPECT_EQ(train(env, worker, {.sync = "server", .precision = precision, .clip = 0.5},
                              optimizer, 6),
                        plain)
                  << workers << " workers, " << servers << " servers, " << precision;
            },
            static_cast<std::uint64_t>(workers));
    }
  }
}

TEST(ServerTraining, OneWorkerWithoutABoundHasTheBitsOfOneProcess) {
  Outcome plain;
  const AdamW adam{.learning_rate = 1e-2};
  testing::run_ranks(1, [&](testing::RankContext& rank) {
    plain = train({.world = rank.world.get()}, 0, {.clip = 0.5}, adam, 6);
  });
  for (const ServerOptions& server :
       {ServerOptions{.staleness = -1}, {.staleness = 3}, {.staleness = 3, .prediction = true}})
    run_with_servers(1, 2, [&](int worker, const parallel::StrategyContext& env) {
      EXPECT_EQ(train(env, worker, {.sync = "server", .clip = 0.5, .server = server}, adam, 6),
                plain);
    });
}

using MakeOptimizer =
    std::function<std::unique_ptr<torch::optim::Optimizer>(std::vector<at::Tensor>)>;

// A linear layer's weights after five steps of `make`'s optimizer, with servers or without.
at::Tensor trained_by(const MakeOptimizer& make, const parallel::StrategyContext* env) {
  torch::nn::Linear net(4, 3);
  {
    const at::NoGradGuard no_grad;
    for (at::Tensor& parameter : net->parameters()) parameter.fill_(0.5);
  }
  const auto optimizer = make(net->parameters());
  std::optional<DataParallel> parallel;
  if (env != nullptr)
    parallel.emplace(*env, *net, *optimizer, DataParallelOptions{.sync = "server"});
  for (int step = 0; step < 5; ++step) {
    const at::Tensor input = at::arange(8, at::kFloat).view({2, 4}) / (step + 1);
    net->forward(input).square().mean().backward();
    if (parallel) {
      parallel->step();
    } else {
      optimizer->step();
      optimizer->zero_grad();
    }
  }
  return net->weight.detach().clone();
}

TEST(ServerTraining, ServersUpdateAsTheModulesOptimizerDoes) {
  const auto made = [](auto optimizer_of_type, const auto& options) -> MakeOptimizer {
    using Type = typename decltype(optimizer_of_type)::type;
    return [options](const std::vector<at::Tensor>& parameters) {
      return std::make_unique<Type>(parameters, options);
    };
  };
  namespace optim = torch::optim;
  const MakeOptimizer all[] = {
      made(std::type_identity<optim::SGD>(),
           optim::SGDOptions(0.1).momentum(0.9).dampening(0.1).weight_decay(0.1)),
      made(std::type_identity<optim::AdamW>(), optim::AdamWOptions(0.05).weight_decay(0.1)),
      made(std::type_identity<optim::Adam>(), optim::AdamOptions(0.05)),
      made(std::type_identity<optim::Adagrad>(), optim::AdagradOptions(0.05).weight_decay(0.1))};
  for (const MakeOptimizer& make : all) {
    const at::Tensor alone = trained_by(make, nullptr);
    run_with_servers(2, 2, [&](int, const parallel::StrategyContext& env) {
      const at::Tensor served = trained_by(make, &env);
      EXPECT_TRUE(at::allclose(served, alone, 1e-5, 1e-6)) << served << alone;
    });
  }
}

// The servers would train them.
TEST(ServerTraining, AnOptimizerWithoutSomeOfTheParametersIsRefused) {
  run_with_servers(1, 1, [&](int, const parallel::StrategyContext& env) {
    struct Net : torch::nn::Module {
      torch::nn::Linear body = register_module("body", torch::nn::Linear(3, 3));
      torch::nn::Linear head = register_module("head", torch::nn::Linear(3, 2));
    } net;
    torch::optim::AdamW adam(net.head->parameters());
    const auto make = [&] { DataParallel(env, net, adam, {.sync = "server"}); };
    try {
      make();
      ADD_FAILURE() << "the servers train body.weight";
    } catch (const ConfigError& error) {
      EXPECT_THAT(error.what(), ::testing::AllOf(::testing::HasSubstr("body.weight"),
                                                 ::testing::HasSubstr("requires_grad")));
    }
    for (const at::Tensor& parameter : net.body->parameters()) parameter.requires_grad_(false);
    make();
  });
}

TEST(ServerTraining, WorkersOnTheirOwnLearn) {
  for (const ServerOptions& server : {ServerOptions{.staleness = -1},
                                      {.staleness = 2},
                                      {.backup = 1},
                                      {.staleness = -1, .compensation = 0.04},
                                      {.staleness = 2, .prediction = true}})
    for (const std::uint64_t seed : {1u, 2u, 3u})
      run_with_servers(
          3, 2,
          [&](int worker, const parallel::StrategyContext& env) {
            const Outcome outcome = train(env, worker, {.sync = "server", .server = server},
                                          AdamW{.learning_rate = 1e-2}, 30);
            EXPECT_LT(outcome.losses.back(), outcome.losses.front() - 1);
          },
          seed);
}

// One of two workers does nothing, so that the other one's gradients are all that there are.
TEST(ServerTraining, TiedWeightsWithBackupWorkersGetTheirOwnGradients) {
  std::vector<double> losses[2];
  for (const bool backup : {false, true})
    run_with_servers(2, 1, [&](int worker, const parallel::StrategyContext& env) {
      if (worker == 1) return;
      ServerOptions server{.staleness = -1};
      if (backup) server = {.backup = 1};
      const Outcome outcome = train(env, worker, {.sync = "server", .server = server},
                                    Sgd{.learning_rate = backup ? 0.1 : 0.2}, 6);
      losses[backup].assign(outcome.losses.begin(), outcome.losses.end());
    });
  ASSERT_EQ(losses[1].size(), 6u);
  for (std::size_t step = 0; step < 6; ++step)
    EXPECT_NEAR(losses[1][step], losses[0][step], 1e-4) << step;
}

// Servers do not look at what workers on their own push: these have.
TEST(ServerTraining, AWorkerOnItsOwnPushesNothingThatIsNotFinite) {
  run_with_servers(2, 2, [&](int worker, const parallel::StrategyContext& context) {
    kernel::Assignment assignment;
    parallel::StrategyContext env = context;
    env.assign = [&](const kernel::Assignment& dealt) { assignment = dealt; };
    Strategy strategy(env, tiny_gpt("fp32"),
                      {.sync = "server", .server = {.staleness = -1}, .skip_not_finite = 2},
                      AdamW{.learning_rate = 1e-2});
    for (int step = 0; step < 8; ++step) {
      const bool loss = step == 2, gradient = step == 4;
      const Loss broken = [&](const models::Value& output, const MicroBatch& micro) {
        const at::Tensor sum = token_loss()(output, micro);
        return loss ? sum * std::nan("") : gradient ? sum + (output.at(0) * 0).sqrt().sum() : sum;
      };
      const StepResult result = strategy.step(batch_of(step, 9, worker, assignment), broken);
      EXPECT_EQ(result.skipped.empty(), !loss && !gradient) << step;
    }
    for (const auto& [name, sum] : sums_of(strategy)) EXPECT_TRUE(std::isfinite(sum)) << name;
  });
}

TEST(ServerTraining, AWorkerOnItsOwnRefusesAStepUnderItsNumber) {
  run_with_servers(3, 1, [&](int worker, const parallel::StrategyContext& env) {
    torch::nn::Linear net(4, 3);
    torch::optim::SGD sgd(net->parameters(), 0.1);
    DataParallel parallel(env, *net, sgd, {.sync = "server", .staleness = -1});
    (net->forward(at::ones({2, 4})).sum() * std::nan("")).backward();
    try {
      parallel.step();
      ADD_FAILURE() << "the step was not refused";
    } catch (const StepRefused& error) {
      const std::string rank = "rank " + std::to_string(worker);
      EXPECT_THAT(error.what(), ::testing::HasSubstr(rank + " refused the step"));
      EXPECT_EQ(error.rank(), worker);
      EXPECT_EQ(error.peer(), worker);
    }
  });
}

// Minimizes w^2 / 2 by SGD with momentum, at a rate that late gradients make too large.
TEST(ServerTraining, PredictedWeightsMakeLateGradientsUseful) {
  const auto distance = [](bool prediction, std::uint64_t seed) {
    std::atomic<float> last = 0;
    run_with_servers(
        4, 1,
        [&](int worker, const parallel::StrategyContext& env) {
          float weight = 1, gradient = 0;
          ps::RemoteOptimizer optimizer(
              Sgd{.momentum = 0.9}, {.staleness = 4, .prediction = prediction}, env.world->waiter(),
              {.count = 1, .dial = env.servers.dial, .worker = worker, .workers = 4});
          const optim::OwnedSlice slice{.name = "w",
                                        .end = 1,
                                        .master_dtype = DType::F32,
                                        .weight = &weight,
                                        .gradient = &gradient};
          const optim::ParameterInfo info{"w", {1}};
          optimizer.attach({&slice, 1}, {&info, 1});
          optimizer.start();
          for (int step = 0; step < 100; ++step) {
            gradient = weight;
            optimizer.apply(0.18, 1);
          }
          optimizer.settle();
          if (worker == 0) last = std::abs(weight);
        },
        seed);
    return last.load();
  };
  for (const std::uint64_t seed : {1u, 2u, 3u}) {
    EXPECT_GT(distance(false, seed), 1) << "the weight runs away";
    EXPECT_LT(distance(true, seed), 1e-3) << seed;
  }
}

TEST(ServerTraining, AModuleHasPredictedWeightsUntilItSettles) {
  std::array<std::string, 3> settled;
  std::atomic<int> moved = 0;
  run_with_servers(3, 2, [&](int worker, const parallel::StrategyContext& env) {
    torch::nn::Linear net(4, 3);
    torch::optim::AdamW adam(net->parameters(), torch::optim::AdamWOptions(0.01));
    DataParallel parallel(env, *net, adam, {.sync = "server", .staleness = 2, .prediction = true});
    for (int step = 0; step < 5; ++step) {
      net->forward(at::ones({2, 4})).square().sum().backward();
      parallel.step();
    }
    env.world->barrier().wait();
    const at::Tensor ahead = net->weight.detach().clone();
    parallel.settle();
    moved += at::equal(ahead, net->weight) ? 0 : 1;
    settled[static_cast<std::size_t>(worker)] = parallel.weights_hash();
    env.world->barrier().wait();
  });
  EXPECT_EQ(moved, 3);
  EXPECT_EQ(settled[0], settled[1]);
  EXPECT_EQ(settled[0], settled[2]);
}

TEST(ServerTraining, ACheckpointGoesOnWithAndWithoutServers) {
  const AdamW adam{.learning_rate = 1e-2};
  Outcome plain;
  testing::run_ranks(1, [&](testing::RankContext& rank) {
    plain = train({.world = rank.world.get()}, 0, {}, adam, 6);
  });
  std::map<std::string, at::Tensor> saved;
  std::string metadata;
  const auto steps = [&](const parallel::StrategyContext& context, int rank, const char* sync,
                         bool resume, std::string& hash) {
    kernel::Assignment assignment;
    parallel::StrategyContext env = context;
    env.assign = [&](const kernel::Assignment& dealt) { assignment = dealt; };
    Strategy strategy(env, tiny_gpt(), {.sync = sync, .ema = 0.9}, adam);
    if (resume) {
      for (const NamedShard& shard : strategy.state())
        shard.local.flatten().copy_(saved.at(shard.name).flatten());
      strategy.restored(metadata);
      // As a training validates before its first step: the servers must not get the average.
      strategy.use_average(true);
      strategy.evaluate({batch_of(0, 9, rank, assignment)}, token_loss());
      strategy.use_average(false);
    }
    for (int step = resume ? 3 : 0; step < (resume ? 6 : 3); ++step)
      strategy.step(batch_of(step, step % 3 == 2 ? 5 : 9, rank, assignment), token_loss());
    hash = strategy.weights_hash();
    if (rank == 0 && !resume) {
      for (const NamedShard& shard : strategy.state()) saved[shard.name] = shard.local.clone();
      metadata = strategy.metadata();
    } else {
      (void)strategy.state();
    }
  };
  std::string hash;
  testing::run_ranks(1, [&](testing::RankContext& rank) {
    steps({.world = rank.world.get()}, 0, "plain", false, hash);
  });
  run_with_servers(2, 2, [&](int worker, const parallel::StrategyContext& env) {
    std::string own;
    steps(env, worker, "server", true, own);
    EXPECT_EQ(own, plain.hash);
  });
  saved.clear();
  run_with_servers(2, 3, [&](int worker, const parallel::StrategyContext& env) {
    std::string own;
    steps(env, worker, "server", false, own);
  });
  testing::run_ranks(1, [&](testing::RankContext& rank) {
    steps({.world = rank.world.get()}, 0, "plain", true, hash);
  });
  EXPECT_EQ(hash, plain.hash);
}

std::string refusal_of(const StrategyOptions& options, const OptimizerOptions& optimizer,
                       int servers) {
  std::string text;
  testing::run_ranks(1, [&](testing::RankContext& rank) {
    try {
      Strategy({.world = rank.world.get(), .servers = {.count = servers}}, tiny_gpt(), options,
               optimizer);
    } catch (const ConfigError& error) {
      text = error.what();
    }
  });
  return text;
}

TEST(ServerTraining, WhatServersCannotDoIsRefusedWithAReason) {
  using ::testing::HasSubstr;
  EXPECT_THAT(refusal_of({.sync = "server"}, AdamW{}, 0),
              HasSubstr("needs servers, but the job has none"));
  EXPECT_THAT(refusal_of({.sync = "server"}, Lamb{}, 1),
              HasSubstr("lamb cannot be combined with parallel.sync"));
  EXPECT_THAT(refusal_of({.sync = "server", .server = {.staleness = -2}}, AdamW{}, 1),
              HasSubstr("server.staleness = -2"));
  EXPECT_THAT(refusal_of({.sync = "server", .server = {.backup = 1}}, AdamW{}, 1),
              HasSubstr("server.backup = 1, but the job has 1 worker"));
  testing::run_ranks(1, [&](testing::RankContext& rank) {
    try {
      Strategy({.world = rank.world.get(), .servers = {.count = 1, .elastic = true}}, tiny_gpt(),
               {.sync = "server", .server = {.staleness = 4}}, AdamW{});
      ADD_FAILURE() << "an elastic job of workers on their own";
    } catch (const ConfigError& error) {
      EXPECT_THAT(error.what(),
                  HasSubstr("workers that train on their own cannot be in an elastic job"));
    }
  });
  EXPECT_THAT(refusal_of({.sync = "server", .compression = "bf16"}, AdamW{}, 1),
              HasSubstr("comm.compression"));
  EXPECT_THAT(refusal_of({.sync = "server", .offload = "/tmp"}, AdamW{}, 1),
              HasSubstr("memory.offload"));
  testing::run_ranks(1, [&](testing::RankContext& rank) {
    try {
      Strategy({.world = rank.world.get(), .servers = {.count = 1, .other_role = "the evaluator"}},
               tiny_gpt(), {.sync = "server"}, AdamW{});
      ADD_FAILURE() << "an evaluator that trains";
    } catch (const ConfigError& error) {
      EXPECT_THAT(
          error.what(),
          HasSubstr("the evaluator cannot train with parallel.sync = \"server\": only workers do"));
    }
  });
  run_with_servers(1, 1, [&](int, const parallel::StrategyContext& env) {
    torch::nn::Linear net(4, 3);
    torch::optim::Adagrad adagrad(net->parameters(), torch::optim::AdagradOptions().lr_decay(0.1));
    try {
      DataParallel(env, *net, adagrad, {.sync = "server"});
      ADD_FAILURE() << "servers have no lr_decay";
    } catch (const ConfigError& error) {
      EXPECT_THAT(error.what(),
                  HasSubstr("Adagrad with lr_decay cannot be combined with sync = \"server\""));
    }
  });
}

}  // namespace
}  // namespace trireme::server_training_test
