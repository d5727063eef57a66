// Bad input to DataParallel and Strategy: each is a clear error on every rank, or a correct step.
#include <ATen/Functions.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/lbfgs.h>
#include <torch/optim/sgd.h>

#include <cmath>
#include <functional>

#include "trireme/base/error.h"
#include "trireme/job/job.h"
#include "trireme/layers/replicate.h"
#include "trireme/memory/recompute.h"
#include "trireme/models/models.h"
#include "trireme/models/module_block.h"
#include "trireme/optim/optimizer.h"
#include "trireme/strategy/data_parallel.h"
#include "trireme/strategy/strategy.h"
#include "trireme/sync/strategy_context.h"
#include "trireme/tensor/products/kernel_table.h"
#include "trireme/testing/run_ranks.h"

namespace trireme::bad_input_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

struct Net : torch::nn::Module {
  Net() {
    first = register_module("first", torch::nn::Linear(3, 5));
    second = register_module("second", torch::nn::Linear(5, 2));
  }
  at::Tensor forward(const at::Tensor& x) { return second(at::tanh(first(x))); }
  torch::nn::Linear first{nullptr}, second{nullptr};
};

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

at::Tensor input(int number) { return at::full({4, 3}, 0.1 * (number + 1)); }
at::Tensor loss_of(Net& net, int number) { return net.forward(input(number)).pow(2).mean(); }

// The message of the E that `act` throws; "" if it throws nothing.
template <class E>
std::string said(const std::function<void()>& act) {
  try {
    act();
  } catch (const E& error) {
    return error.what();
  }
  return "";
}

struct Sync {
  std::string name;
  int shard = 0;
};
const std::vector<Sync>& syncs() {
  static const std::vector<Sync> all = {{"plain"}, {"zero1"}, {"zero2"}, {"zero3"}, {"hybrid", 2}};
  return all;
}

// A rank's Strategy over blocks, and its share of the batches.
struct Program {
  Program(testing::RankContext& context, const models::Blocks& model, StrategyOptions options,
          std::string processor = {})
      : rank(context),
        strategy(env(std::move(processor)), model, std::move(options),
                 optim::make_optimizer(AdamW{.learning_rate = 1e-2})) {}
  parallel::StrategyContext env(std::string processor) {
    parallel::StrategyContext env{.world = rank.world.get(), .processor = std::move(processor)};
    env.assign = [this](const kernel::Assignment& dealt) { assignment = dealt; };
    return env;
  }
  Batch batch(std::int64_t step, std::uint32_t total = 4) const {
    Batch batch{.total = total, .global_count = total, .step = step};
    for (const std::uint32_t i : leaves_of(assignment, total, rank.rank))
      batch.micro.push_back(
          {.index = i,
           .count = 1,
           .fields = {{"features", at::full({2, 3}, 0.1 + static_cast<double>(step + i))}}});
    return batch;
  }
  StepResult step(std::int64_t number, const Loss& loss, std::uint32_t total = 4) {
    return strategy.step(batch(number, total), loss);
  }
  testing::RankContext& rank;
  kernel::Assignment assignment;
  Strategy strategy;
};

models::Blocks small_model() { return models::make_mlp({.widths = {3, 5, 2}}); }
const Loss kSquares = [](const models::Value& output, const MicroBatch&) {
  return output.at(0).pow(2).sum();
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

TEST(BadInput, ABatchWithoutABackwardPassIsRefusedOnAllRanks) {
  for (const char* sync : {"plain", "zero1", "zero2"}) {
    testing::run_ranks(2, [&](testing::RankContext& rank) {
      Net net;
      torch::optim::Adam adam(net.parameters(), 1e-2);
      DataParallel parallel({.world = rank.world.get()}, net, adam, {.sync = sync});
      loss_of(net, 0).backward();
      EXPECT_TRUE(parallel.step());
      const std::string before = parallel.weights_hash();
      EXPECT_THAT(said<StepRefused>([&] { parallel.step(); }),
                  AllOf(HasSubstr("no rank called backward()"), HasSubstr("backward(sum, 0)")));
      EXPECT_EQ(parallel.weights_hash(), before);
      if (rank.rank == 0) loss_of(net, 1).backward();  // the other has nothing to learn from
      EXPECT_TRUE(parallel.step());
      EXPECT_NE(parallel.weights_hash(), before);
    });
  }
}

TEST(BadInput, ALossOverNoItemsIsRefused) {
  for (const char* sync : {"plain", "zero1", "zero2"}) {
    testing::run_ranks(2, [&](testing::RankContext& rank) {
      Net net;
      torch::optim::Adam adam(net.parameters(), 1e-2);
      DataParallel parallel({.world = rank.world.get()}, net, adam, {.sync = sync});
      const std::string before = parallel.weights_hash();
      EXPECT_THAT(said<ConfigError>([&] { parallel.backward(loss_of(net, 0), -1); }),
                  AllOf(HasSubstr("backward(sum, -1)"), HasSubstr("0 or more")));
      parallel.backward(loss_of(net, 0), 0);
      EXPECT_THAT(said<StepRefused>([&] { parallel.step(); }),
                  AllOf(HasSubstr("summed over 0 items"), HasSubstr("backward(sum, count)")));
      EXPECT_EQ(parallel.weights_hash(), before);
      parallel.backward(loss_of(net, 0) * 0, 0);  // a batch of padding alone
      EXPECT_TRUE(parallel.step());
      parallel.backward(loss_of(net, 0), rank.rank);
      EXPECT_TRUE(parallel.step());
    });
  }
  testing::run_ranks(1, [&](testing::RankContext& rank) {
    Program program(rank, small_model(), {});
    Batch batch = program.batch(0);
    for (MicroBatch& micro : batch.micro) micro.count = 0;
    EXPECT_THAT(said<StepRefused>([&] { program.strategy.step(batch, kSquares); }),
                AllOf(HasSubstr("summed over 0 items"), HasSubstr("MicroBatch::count")));
  });
}

// The optimizer's own step() finds no gradients.
TEST(BadInput, ALoopThatKeepsTheOptimizersStepIsRefused) {
  testing::run_ranks(2, [](testing::RankContext& rank) {
    Net net;
    torch::optim::Adam adam(net.parameters(), 1e-2);
    DataParallel parallel({.world = rank.world.get()}, net, adam);
    const std::string before = parallel.weights_hash();
    const auto train = [&](int number) {
      loss_of(net, number + rank.rank).backward();
      adam.step();
      adam.zero_grad();
    };
    for (const int number : {0, 1}) train(number);
    EXPECT_THAT(said<ConfigError>([&] { train(2); }),
                AllOf(HasSubstr("step() of DataParallel never"), HasSubstr("parallel.step()")));
    EXPECT_EQ(parallel.weights_hash(), before);
  });
}

TEST(BadInput, BackwardPassesAfterTheTrainingAreNoMatter) {
  for (const bool resumed : {false, true}) {
    testing::run_ranks(2, [&](testing::RankContext& rank) {
      Net net, other;
      torch::optim::SGD sgd(net.parameters(), 0.1), second(other.parameters(), 0.1);
      DataParallel parallel({.world = rank.world.get()}, net, sgd);
      loss_of(net, 0).backward();
      parallel.step();
      DataParallel again({.world = rank.world.get()}, other, second);
      if (resumed) again.restored(parallel.metadata());
      for (int i = 0; i < 4; ++i) loss_of(resumed ? other : net, i).backward();
    });
  }
}

// Their gradients are equal, so nothing else would tell.
TEST(BadInput, RanksWithOtherSettingsAreRefusedWithBoth) {
  testing::run_ranks(2, [](testing::RankContext& rank) {
    const parallel::StrategyContext env{.world = rank.world.get()};
    const bool other = rank.rank == 1;
    Net net;
    torch::optim::SGD sgd(net.parameters(), 0.1), some(net.first->parameters(), 0.1);
    torch::optim::Adam adam(net.parameters(), 1e-2);
    const auto both = [](const char* theirs, const char* first) {
      return AllOf(HasSubstr("rank 1 trains with"), HasSubstr(theirs), HasSubstr(first));
    };
    EXPECT_THAT(
        said<MismatchError>([&] { DataParallel(env, net, sgd, {.clip = other ? 0.5 : 0}); }),
        both("clip 0.5", "clip 0,"));
    EXPECT_THAT(said<MismatchError>([&] {
                  DataParallel(env, net, sgd, {.sync = "zero1", .skip_not_finite = other ? 5 : 0});
                }),
                both("skip_not_finite 5", "skip_not_finite 0"));
    EXPECT_THAT(said<MismatchError>(
                    [&] { DataParallel(env, net, sgd, {.sync = other ? "zero1" : "plain"}); }),
                both("sync zero1", "sync plain"));
    EXPECT_THAT(said<MismatchError>([&] { DataParallel(env, net, other ? some : sgd); }),
                both("SGD of 2 parameters", "SGD of 4 parameters"));
    EXPECT_THAT(said<MismatchError>(
                    [&] { other ? DataParallel(env, net, adam) : DataParallel(env, net, sgd); }),
                both("Adam of", "SGD of"));
    torch::optim::SGD weight({other ? net.second->weight : net.first->weight}, 0.1);
    EXPECT_THAT(said<MismatchError>([&] { DataParallel(env, net, weight); }),
                both("second.weight", "first.weight"));
    torch::optim::SGD decays(net.parameters(),
                             torch::optim::SGDOptions(0.1).weight_decay(other ? 0.5 : 0));
    EXPECT_THAT(said<MismatchError>([&] { DataParallel(env, net, decays); }),
                both("weight_decay 0.5", "weight_decay 0,"));
  });
}

TEST(BadInput, RanksWhoseStrategiesDifferAreRefusedWithBoth) {
  testing::run_ranks(2, [](testing::RankContext& rank) {
    const bool other = rank.rank == 1;
    const auto refused = [&](const StrategyOptions& options, const char* theirs,
                             const char* first) {
      EXPECT_THAT(said<MismatchError>([&] { Program(rank, small_model(), options); }),
                  AllOf(HasSubstr("rank 1 trains with"), HasSubstr(theirs), HasSubstr(first)));
    };
    refused({.clip = other ? 0.5 : 0}, "clip 0.5", "clip 0,");
    refused({.outliers = {.limit = other ? 6.0 : 0}}, "outliers 6", "outliers 0");
    refused({.tensor = 2, .seed = other ? 2u : 1u}, "seed 2", "seed 1");
    refused({.shares = other ? "2:1" : "equal"}, "shares 2:1", "shares equal");
    refused({.noise_scale = other}, "noise_scale 1", "noise_scale 0");
    refused({.precision = "fp16", .loss_scale = LossScaleOptions{.window = other ? 9 : 10}},
            "for 9 steps", "for 10 steps");
    refused({.sync = "local_sgd", .local = {.steps = other ? 4 : 8}}, "4 local steps",
            "8 local steps");
    EXPECT_THAT(said<MismatchError>([&] {
                  Strategy({.world = rank.world.get()}, small_model(), {},
                           AdamW{.beta1 = other ? 0.5 : 0.9});
                }),
                AllOf(HasSubstr("\"beta1\":0.5"), HasSubstr("\"beta1\":0.9")));
  });
}

TEST(BadInput, LearningRatesThatDifferAreRefusedOnAllRanks) {
  const auto differ = AllOf(HasSubstr("its learning rate is 0.5, that of rank 0 is 0.1"),
                            HasSubstr("on all ranks"));
  const auto no_number = HasSubstr("its learning rate is nan");
  for (const char* sync : {"plain", "zero1"}) {
    testing::run_ranks(2, [&](testing::RankContext& rank) {
      Net net;
      torch::optim::SGD sgd(
          std::vector<torch::optim::OptimizerParamGroup>{
              torch::optim::OptimizerParamGroup(net.first->parameters()),
              torch::optim::OptimizerParamGroup(net.second->parameters())},
          0.1);
      DataParallel parallel({.world = rank.world.get()}, net, sgd, {.sync = sync});
      const auto step = [&](double rate, double second = 0.1) {
        sgd.param_groups()[0].options().set_lr(rate);
        sgd.param_groups()[1].options().set_lr(second);
        loss_of(net, 0).backward();
        return parallel.step();
      };
      EXPECT_TRUE(step(0.1));
      EXPECT_THAT(said<StepRefused>([&] { step(rank.rank == 1 ? 0.5 : 0.1); }), differ);
      EXPECT_THAT(said<StepRefused>([&] { step(0.1, rank.rank == 1 ? 0.5 : 0.1); }),
                  AllOf(HasSubstr("rank 1 refused"), HasSubstr("groups"), HasSubstr("on all")));
      const std::string before = parallel.weights_hash();
      EXPECT_THAT(said<StepRefused>([&] { step(rank.rank == 1 ? std::nan("") : 0.1); }), no_number);
      EXPECT_THAT(said<StepRefused>([&] { step(0.1, std::nan("")); }), no_number);
      EXPECT_EQ(parallel.weights_hash(), before);
      EXPECT_TRUE(step(0.5, 0.2));
    });
  }
  testing::run_ranks(2, [&](testing::RankContext& rank) {
    Program program(rank, small_model(), {});
    program.strategy.set_learning_rate(rank.rank == 1 ? 0.5 : 0.1);
    EXPECT_THAT(said<StepRefused>([&] { program.step(0, kSquares); }), differ);
    Program own(rank, small_model(), {.sync = "local_sgd"});  // a copy on each rank
    own.strategy.set_learning_rate(rank.rank == 1 ? 0.5 : 0.1);
    own.step(0, kSquares);
    for (Program* one : {&program, &own}) {
      one->strategy.set_learning_rate(rank.rank == 1 ? std::nan("") : 0.1);
      EXPECT_THAT(said<StepRefused>([&] { one->step(1, kSquares); }), no_number);
    }
  });
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

// A loss that is NaN, or (`finite`) a finite loss whose gradient is not finite.
Loss broken_in(std::uint32_t micro_batch, bool finite) {
  return [=](const models::Value& output, const MicroBatch& micro) {
    const at::Tensor sum = output.at(0).pow(2).sum();
    if (micro.index != micro_batch) return sum;
    return finite ? sum + (output.at(0) * 0).sqrt().sum() : sum * std::nan("");
  };
}

// All ranks skip steps 1 and 2, so the result is that of training with steps 0 and 3 only.
TEST(BadInput, GradientsThatAreNoNumbersOnOneRankAreLeftOutOnAllAndCounted) {
  for (const Sync& sync : syncs()) {
    testing::run_ranks(2, [&](testing::RankContext& rank) {
      const StrategyOptions options{.sync = sync.name, .shard = sync.shard, .skip_not_finite = 2};
      Program program(rank, small_model(), options), without(rank, small_model(), options);
      for (const int step : {0, 3}) without.step(step, kSquares);
      for (int step = 0; step < 4; ++step) {
        const bool bad = step == 1 || step == 2;
        const StepResult result = program.step(step, bad ? broken_in(3, step == 1) : kSquares);
        EXPECT_EQ(result.skipped.empty(), !bad) << step;
        if (bad) {
          EXPECT_THAT(result.skipped,
                      AllOf(HasSubstr("rank 1 refused the step"), HasSubstr("micro-batch 3")));
        }
        EXPECT_EQ(result.skipped_steps, std::min(step, 2));
      }
      EXPECT_EQ(program.strategy.weights_hash(), without.strategy.weights_hash()) << sync.name;

      // The budget is spent, here and in a run that resumes from this one's checkpoint.
      const std::string metadata = program.strategy.metadata();
      const std::string spent =
          "2 steps were left out before for such numbers, and "
          "train.skip_not_finite is 2";
      EXPECT_THAT(said<StepRefused>([&] { program.step(4, broken_in(0, false)); }),
                  AllOf(HasSubstr(spent), HasSubstr("rank 0 refused")));
      without.strategy.restored(metadata);
      EXPECT_THAT(said<StepRefused>([&] { without.step(4, broken_in(0, true)); }),
                  HasSubstr(spent));
      program.step(5, kSquares);
    });
  }
}

TEST(BadInput, GradientsThatAreNoNumbersAreCountedAtTheModulesDoor) {
  for (const char* sync : {"plain", "zero1", "zero2"}) {
    testing::run_ranks(2, [&](testing::RankContext& rank) {
      Net net;
      torch::optim::AdamW adam(net.parameters(), torch::optim::AdamWOptions(1e-2));
      DataParallel parallel({.world = rank.world.get()}, net, adam,
                            {.sync = sync, .skip_not_finite = 1});
      const auto step = [&](int number, int bad_rank) {
        const double factor = rank.rank == bad_rank ? std::nan("") : 1;
        (loss_of(net, number) * factor).backward();
        return parallel.step();
      };
      EXPECT_TRUE(step(0, -1));
      const std::string before = parallel.weights_hash();
      EXPECT_FALSE(step(1, 1));
      EXPECT_EQ(parallel.weights_hash(), before);
      EXPECT_EQ(parallel.steps(), 1);
      EXPECT_EQ(parallel.skipped_steps(), 1);
      EXPECT_THAT(parallel.metadata(), HasSubstr("\"not_finite\":1"));
      EXPECT_TRUE(step(2, -1));
      EXPECT_THAT(
          said<StepRefused>([&] { step(3, 0); }),
          AllOf(HasSubstr("1 step was left out before"), HasSubstr("skip_not_finite is 1")));
      EXPECT_TRUE(step(4, -1));
    });
  }
}

TEST(BadInput, AUsersExceptionIsNoMatterOfTheBudget) {
  testing::run_ranks(2, [&](testing::RankContext& rank) {
    Program program(rank, small_model(), {.skip_not_finite = 5});
    const Loss fails = [](const models::Value& output, const MicroBatch& micro) {
      if (micro.index == 2) throw std::out_of_range("no such word");
      return output.at(0).sum();
    };
    EXPECT_THAT(said<StepRefused>([&] { program.step(0, fails); }), HasSubstr("no such word"));
  });
}

TEST(BadInput, RanksWithoutSamplesTakePartUnderEverySync) {
  const auto trained = [](int ranks, const Sync& sync) {
    std::string hash;
    testing::run_ranks(ranks, [&](testing::RankContext& rank) {
      Program program(rank, small_model(), {.sync = sync.name, .shard = sync.shard, .clip = 0.1});
      std::int64_t step = 0;
      for (const std::uint32_t total : {5u, 1u, 2u, 1u}) program.step(step++, kSquares, total);
      const std::string own = program.strategy.weights_hash();
      if (rank.rank == 0) hash = own;
    });
    return hash;
  };
  const std::string one = trained(1, {"plain"});
  for (const Sync& sync : syncs()) EXPECT_EQ(trained(4, sync), one) << sync.name;
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

TEST(BadInput, ARankThatComputesOtherBitsIsRefusedWithBothValues) {
  testing::run_ranks(3, [&](testing::RankContext& rank) {
    const std::string processor =
        rank.rank == 2 ? "kernels avx512, ONEDNN_MAX_CPU_ISA=AVX2" : "kernels avx512";
    const auto both = AllOf(HasSubstr("rank 2 computes with \""
                                      "kernels avx512, ONEDNN_MAX_CPU_ISA"
                                      "=AVX2\", rank 0 with \"kernels avx512\""),
                            HasSubstr("reproducible"));
    Net net;
    torch::optim::SGD sgd(net.parameters(), torch::optim::SGDOptions(0.1));
    parallel::StrategyContext env{.world = rank.world.get(), .processor = processor};
    EXPECT_THAT(said<MismatchError>([&] { DataParallel(env, net, sgd); }), both);
    EXPECT_THAT(said<MismatchError>([&] { Program(rank, small_model(), {}, processor); }), both);
    env.reproducible = false;
    EXPECT_EQ(said<MismatchError>([&] { DataParallel(env, net, sgd); }), "");
    // local_sgd makes no promise of equal bits: each rank trains its own copy.
    Program(rank, small_model(), {.sync = "local_sgd"}, processor);
  });
}

TEST(BadInput, RanksCompareTheirLibrariesToTheLastWord) {
  testing::run_ranks(2, [&](testing::RankContext& rank) {
    const std::string text = std::string(5000, 'x') + (rank.rank == 1 ? "aten" : "onednn");
    EXPECT_THAT(said<MismatchError>(
                    [&] { parallel::require_equal_ranks(*rank.world, {.processor = text}, ""); }),
                AllOf(HasSubstr("xaten"), HasSubstr("xonednn")));
    Job job(rank.transport, {}, nullptr);
    EXPECT_THAT(parallel::context_of(job).processor,
                HasSubstr(tensor::describe(tensor::kernel_table())));
  });
}

}  // namespace
}  // namespace trireme::bad_input_test
