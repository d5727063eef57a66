// Models that cannot be trained as they are: shared or replaced parameters, optimizers of others.
#include <ATen/Functions.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/lbfgs.h>
#include <torch/optim/sgd.h>

#include <functional>

#include "trireme/base/error.h"
#include "trireme/memory/recompute.h"
#include "trireme/models/module_block.h"
#include "trireme/optim/optimizer.h"
#include "trireme/strategy/bad_input_test.h"
#include "trireme/strategy/data_parallel.h"
#include "trireme/sync/strategy_context.h"
#include "trireme/testing/run_ranks.h"

namespace trireme::bad_input_test {
namespace {

// Two parameters that are views of the same memory, with offsets 0 and `apart`.
struct Views : torch::nn::Module {
  explicit Views(std::int64_t apart) {
    const at::Tensor flat = at::linspace(-1, 1, 12);
    left = register_parameter("left", flat.narrow(0, 0, 6));
    right = register_parameter("right", flat.narrow(0, apart, 6));
  }
  at::Tensor forward(const at::Tensor& x) { return x * left.sum() + right.sum(); }
  at::Tensor left, right;
};

TEST(BadInput, ParametersThatShareMemoryAreNamedAtBothDoors) {
  testing::run_ranks(2, [&](testing::RankContext& rank) {
    for (const char* sync : {"plain", "zero1", "zero2"}) {
      Views overlap(4), apart(6);
      torch::optim::SGD sgd(overlap.parameters(), torch::optim::SGDOptions(0.1));
      const parallel::StrategyContext env{.world = rank.world.get()};
      EXPECT_THAT(said<ConfigError>([&] { DataParallel(env, overlap, sgd, {.sync = sync}); }),
                  AllOf(HasSubstr("right and left share memory"), HasSubstr("clone()")));
      torch::optim::SGD other(apart.parameters(), torch::optim::SGDOptions(0.1));
      DataParallel parallel(env, apart, other, {.sync = sync});
      apart.forward(at::ones({2})).sum().backward();
      EXPECT_TRUE(parallel.step()) << "side by side is no harm";
    }
    for (const Sync& sync : syncs()) {
      models::Blocks model;
      model.add("views", [] { return Views(4); });
      EXPECT_THAT(said<ConfigError>(
                      [&] { Program(rank, model, {.sync = sync.name, .shard = sync.shard}); }),
                  HasSubstr("views.right and views.left share memory"));
    }
  });
}

TEST(BadInput, OneTensorInTwoBlocksIsNamed) {
  testing::run_ranks(1, [&](testing::RankContext& rank) {
    const auto shared = std::make_shared<torch::nn::LinearImpl>(3, 3);
    const auto holder = torch::nn::Linear(shared);
    models::Blocks model;
    model.add_block(
        {.name = "a", .make = [=] { return models::as_block(holder); }, .reads = {"features"}});
    model.add("b", [=] { return holder; });
    EXPECT_THAT(said<ConfigError>([&] { Program(rank, model, {}); }),
                AllOf(HasSubstr("b.weight and a.weight are one tensor"), HasSubstr("tie()")));
  });
}

// DataParallel: rank 1 changes its module between two steps, and all ranks get the error.
TEST(BadInput, AParameterThatIsReplacedIsNamedOnAllRanks) {
  struct Change {
    const char* sync;
    std::function<void(Net&)> make;
    const char* said;
  };
  const std::vector<Change> changes = {
      {"plain", [](Net& net) { net.first = net.replace_module("first", torch::nn::Linear(3, 5)); },
       "parameter first.weight is another tensor"},
      {"zero1", [](Net& net) { net.first = net.replace_module("first", torch::nn::Linear(3, 5)); },
       "parameter first.weight is another tensor"},
      {"zero2", [](Net& net) { net.second->bias.set_data(net.second->bias.detach().clone()); },
       "parameter second.bias has other memory"},
      {"plain", [](Net& net) { net.first->bias.set_data(at::zeros({5}, at::kDouble)); },
       "parameter first.bias has another type"},
      {"plain", [](Net& net) { net.register_parameter("more", at::zeros({1})); },
       "the module has 5 parameters, and had 4"},
      {"plain", [](Net& net) { net.first->bias.requires_grad_(true); }, "requires grad"},
      {"plain", [](Net& net) { net.first->bias.requires_grad_(false); },
       "parameter first.bias does not require grad, and did, when DataParallel was made"},
  };
  for (const Change& change : changes) {
    testing::run_ranks(2, [&](testing::RankContext& rank) {
      Net net;
      if (std::string(change.said) == "requires grad") net.first->bias.requires_grad_(false);
      torch::optim::SGD sgd(net.parameters(), torch::optim::SGDOptions(0.1));
      DataParallel parallel({.world = rank.world.get()}, net, sgd,
                            {.sync = change.sync, .skip_not_finite = 5});
      loss_of(net, 0).backward();
      EXPECT_TRUE(parallel.step());
      loss_of(net, 1).backward();
      if (rank.rank == 1) change.make(net);
      const std::string before = rank.rank == 0 ? parallel.weights_hash() : "";
      try {
        parallel.step();
        ADD_FAILURE() << change.said << ": the step was applied";
      } catch (const StepRefused& error) {
        EXPECT_THAT(error.what(), HasSubstr(change.said));
        EXPECT_EQ(error.peer(), 1);
        EXPECT_EQ(error.exit_code(), 20);
      }
      EXPECT_EQ(rank.rank == 0 ? parallel.weights_hash() : "", before);
    });
  }
}

// The hook of a parameter runs once for each recomputed part.
TEST(BadInput, AParameterInSeveralRecomputedPartsIsRefusedWithTheReason) {
  for (const int parts : {1, 5}) {
    testing::run_ranks(2, [&](testing::RankContext& rank) {
      struct Shared : torch::nn::Module {
        torch::nn::Linear block = register_module("block", torch::nn::Linear(3, 3));
      } net;
      torch::optim::SGD sgd(net.parameters(), 0.1);
      DataParallel parallel({.world = rank.world.get()}, net, sgd);
      at::Tensor x = input(0);
      for (int part = 0; part < parts; ++part)
        x = memory::recompute([&](const at::Tensor& in) { return at::tanh(net.block(in)); }, x);
      x.pow(2).mean().backward();
      if (parts == 1) {
        EXPECT_TRUE(parallel.step());
      } else {
        EXPECT_THAT(said<StepRefused>([&] { parallel.step(); }),
                    AllOf(HasSubstr("two gradients"), HasSubstr("one recomputed part only")));
      }
    });
  }
}

// The end of the first would take away the gradients of the second.
TEST(BadInput, ASecondDataParallelOfAModuleIsRefusedUntilTheFirstHasEnded) {
  testing::run_ranks(2, [](testing::RankContext& rank) {
    const parallel::StrategyContext env{.world = rank.world.get()};
    Net net;
    torch::optim::SGD sgd(net.parameters(), 0.1);
    auto parallel = std::make_unique<DataParallel>(env, net, sgd);
    EXPECT_THAT(said<ConfigError>([&] { DataParallel(env, net, sgd); }),
                AllOf(HasSubstr("another DataParallel"), HasSubstr("reset()")));
    parallel.reset();
    parallel = std::make_unique<DataParallel>(env, net, sgd);
    loss_of(net, 0).backward();
    EXPECT_TRUE(parallel->step());
  });
}

// A factory that returns the same module each time.
TEST(BadInput, ASecondStrategyOfAModuleIsRefusedUntilTheFirstHasEnded) {
  testing::run_ranks(1, [](testing::RankContext& rank) {
    models::Blocks model;
    const torch::nn::Linear same(3, 2);
    model.add("same", {"features"}, [same] { return same; });
    {
      const Program first(rank, model, {});
      EXPECT_THAT(
          said<ConfigError>([&] { Program(rank, model, {}); }),
          AllOf(HasSubstr("same.weight is trained by another Strategy"), HasSubstr("new module")));
    }
    Program(rank, model, {}).step(0, kSquares);
  });
}

TEST(BadInput, AnOptimizerThatWouldUpdateATensorTwiceOrNoneIsRefused) {
  testing::run_ranks(2, [](testing::RankContext& rank) {
    const parallel::StrategyContext env{.world = rank.world.get()};
    Net net;
    torch::nn::Module both;
    both.register_module("encoder", net.first.ptr());
    both.register_module("decoder", net.first.ptr());
    torch::optim::SGD sgd(both.parameters(), 0.1);
    EXPECT_THAT(said<ConfigError>([&] { DataParallel(env, both, sgd); }),
                AllOf(HasSubstr("encoder.weight twice"), HasSubstr("each tensor once")));
    torch::optim::SGD once(net.first->parameters(), 0.1);
    EXPECT_EQ(said<ConfigError>([&] { DataParallel(env, both, once); }), "");
    net.first->weight.requires_grad_(false);
    torch::optim::SGD none({net.first->weight}, 0.1);
    EXPECT_THAT(said<ConfigError>([&] { DataParallel(env, net, none); }),
                HasSubstr("no parameter of the module that requires grad"));
  });
}

// Without ZeRO, a parameter may get other memory of the same type: the optimizer updates that.
TEST(BadInput, OtherMemoryUnderPlainIsTrained) {
  testing::run_ranks(2, [&](testing::RankContext& rank) {
    Net net;
    torch::optim::SGD sgd(net.parameters(), torch::optim::SGDOptions(0.1));
    DataParallel parallel({.world = rank.world.get()}, net, sgd);
    net.first->weight.set_data(net.first->weight.detach().clone());
    const at::Tensor before = net.first->weight.detach().clone();
    loss_of(net, 0).backward();
    EXPECT_TRUE(parallel.step());
    EXPECT_FALSE(at::equal(net.first->weight, before));
  });
}

TEST(BadInput, AParameterThatIsReplacedInABlockIsNamedOnAllRanks) {
  for (const Sync& sync : syncs()) {
    for (const bool other_memory : {false, true}) {
      testing::run_ranks(2, [&](testing::RankContext& rank) {
        std::shared_ptr<Net> net;
        models::Blocks model;
        model.add_block({.name = "net",
                         .make =
                             [&net] {
                               net = std::make_shared<Net>();
                               return models::as_block(net);
                             },
                         .reads = {"features"}});
        Program program(rank, model, {.sync = sync.name, .shard = sync.shard});
        program.step(0, kSquares);
        if (rank.rank == 1 && other_memory) net->first->weight.set_data(at::zeros({5, 3}));
        if (rank.rank == 1 && !other_memory)
          net->first = net->replace_module("first", torch::nn::Linear(3, 5));
        try {
          program.step(1, kSquares);
          ADD_FAILURE() << sync.name << ": the step was applied";
        } catch (const StepRefused& error) {
          EXPECT_THAT(error.what(),
                      HasSubstr(other_memory ? "parameter net.first.weight has other memory"
                                             : "parameter net.first.weight is another tensor"));
          EXPECT_EQ(error.peer(), 1);
          EXPECT_EQ(error.exit_code(), 20);
        }
      });
    }
  }
}

TEST(BadInput, TheStateOfAnotherOptimizerIsNamedAtTheModulesDoor) {
  testing::run_ranks(2, [&](testing::RankContext& rank) {
    Net net, other;
    torch::optim::Adam adam(net.parameters(), torch::optim::AdamOptions(1e-2));
    torch::optim::AdamW adamw(other.parameters(), torch::optim::AdamWOptions(1e-2));
    DataParallel saved({.world = rank.world.get()}, net, adam, {.sync = "zero1"});
    DataParallel resumed({.world = rank.world.get()}, other, adamw);
    EXPECT_THAT(said<CheckpointError>([&] { resumed.restored(saved.metadata()); }),
                HasSubstr("state of the optimizer Adam, and this run has AdamW"));
  });
}

TEST(BadInput, LbfgsIsRefusedWithItsReason) {
  testing::run_ranks(1, [&](testing::RankContext& rank) {
    for (const char* sync : {"plain", "zero1", "zero2"}) {
      Net net;
      torch::optim::LBFGS lbfgs(net.parameters());
      EXPECT_THAT(said<ConfigError>([&] {
                    DataParallel({.world = rank.world.get()}, net, lbfgs, {.sync = sync});
                  }),
                  AllOf(HasSubstr("LBFGS evaluates the loss several times per step"),
                        HasSubstr("Use SGD, Adam, AdamW, RMSprop or Adagrad")));
    }
  });
}

}  // namespace
}  // namespace trireme::bad_input_test
