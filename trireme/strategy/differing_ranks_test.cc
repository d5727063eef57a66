// Ranks that differ in settings, rates, libraries or bits are refused, and the error says both values.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/optim/adam.h>
#include <torch/optim/sgd.h>

#include "trireme/base/error.h"
#include "trireme/job/job.h"
#include "trireme/layers/replicate.h"
#include "trireme/optim/optimizer.h"
#include "trireme/strategy/bad_input_test.h"
#include "trireme/strategy/data_parallel.h"
#include "trireme/strategy/strategy.h"
#include "trireme/sync/strategy_context.h"
#include "trireme/tensor/determinism.h"
#include "trireme/tensor/products/kernel_table.h"
#include "trireme/testing/run_ranks.h"

namespace trireme::bad_input_test {
namespace {

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

// Such as a program that loads its optimizer's state on rank 0 alone.
TEST(BadInput, RanksWhoseOptimizersHaveOtherStatesAreRefused) {
  for (const char* sync : {"plain", "zero1"}) {
    testing::run_ranks(2, [&](testing::RankContext& rank) {
      const parallel::StrategyContext env{.world = rank.world.get()};
      Net net;
      torch::optim::Adam adam(net.parameters(), 1e-2);
      const auto step = [&] {
        loss_of(net, 0).backward();
        adam.step();
        adam.zero_grad();
      };
      if (rank.rank == 0) step();
      EXPECT_THAT(
          said<MismatchError>([&] { DataParallel(env, net, adam, {.sync = sync}); }),
          AllOf(HasSubstr("rank 1 trains with"), HasSubstr("rank 0 with"), HasSubstr(", state "),
                HasSubstr("load its state on all ranks or on none")));
    });
  }
}

// A momentum of zeros counts only with dampening: the first update then takes a part of the
// gradient, and else all of it.
TEST(BadInput, AMomentumOfZerosOnOneRankIsRefusedIfItChangesTheFirstUpdate) {
  for (const double dampening : {0.0, 0.5}) {
    testing::run_ranks(2, [&](testing::RankContext& rank) {
      Net net;
      torch::optim::SGD sgd(net.parameters(),
                            torch::optim::SGDOptions(0.1).momentum(0.9).dampening(dampening));
      if (rank.rank == 1)
        for (const at::Tensor& parameter : net.parameters()) {
          auto state = std::make_unique<torch::optim::SGDParamState>();
          state->momentum_buffer(at::zeros_like(parameter.detach()));
          sgd.state()[parameter.unsafeGetTensorImpl()] = std::move(state);
        }
      const std::string refusal =
          said<MismatchError>([&] { DataParallel({.world = rank.world.get()}, net, sgd); });
      EXPECT_EQ(refusal.find(", state ") != refusal.npos, dampening != 0) << refusal;
    });
  }
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
    refused({.pipeline = other ? 1 : 2}, "pipeline 1", "pipeline 2");
    refused({.pipeline = 2, .schedule = other ? "gpipe" : "1f1b"}, "schedule gpipe",
            "schedule 1f1b");
    refused({.tensor = other ? 1 : 2}, "tensor 1", "tensor 2");
    refused({.sync = "hybrid", .shard = other ? 1 : 2}, "shard 1", "shard 2");
    refused({.shares = other ? "2:1" : "equal"}, "shares 2:1", "shares equal");
    refused({.noise_scale = other}, "noise_scale 1", "noise_scale 0");
    refused({.precision = "fp16", .loss_scale = LossScaleOptions{.window = other ? 9 : 10}},
            "for 9 steps", "for 10 steps");
    EXPECT_THAT(said<MismatchError>(
                    [&] { Program(rank, small_model(), {.kernel_threads = other ? 2 : 1}); }),
                AllOf(HasSubstr("rank 1 computes with"), HasSubstr("2 threads a kernel")));
    tensor::set_up_kernels(1);
    refused({.sync = "local_sgd", .local = {.steps = other ? 4 : 8}}, "4 local steps",
            "8 local steps");
    EXPECT_THAT(said<MismatchError>([&] {
                  Strategy({.world = rank.world.get()}, small_model(), {},
                           AdamW{.beta1 = other ? 0.5 : 0.9});
                }),
                AllOf(HasSubstr("\"beta1\":0.5"), HasSubstr("\"beta1\":0.9")));
    EXPECT_THAT(said<MismatchError>([&] {
                  Strategy({.world = rank.world.get()}, small_model(), {},
                           Adafactor{.epsilon = other ? 1e-3 : 0});
                }),
                HasSubstr("\"factored_epsilon\":0.001"));
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

// Without a Sampler a mean would weigh as one item, a sum over 8 items as 8.
TEST(BadInput, AMeanBesideASumIsRefusedOnAllRanks) {
  for (const char* sync : {"plain", "zero1"}) {
    testing::run_ranks(2, [&](testing::RankContext& rank) {
      Net net;
      torch::optim::SGD sgd(net.parameters(), 0.1);
      DataParallel parallel({.world = rank.world.get()}, net, sgd, {.sync = sync});
      const auto step = [&](bool mean, std::int64_t count) {
        const at::Tensor loss = loss_of(net, rank.rank);
        mean ? parallel.backward(loss)
             : parallel.backward(loss * static_cast<double>(count), count);
        return parallel.step();
      };
      const std::string before = parallel.weights_hash();
      EXPECT_THAT(said<StepRefused>([&] { step(rank.rank == 0, 8); }),
                  AllOf(HasSubstr("rank 1 refused"), HasSubstr("a sum over items"),
                        HasSubstr("rank 0 a mean"), HasSubstr("backward(sum, count)")));
      EXPECT_EQ(parallel.weights_hash(), before);
      EXPECT_TRUE(step(true, 0));
      EXPECT_TRUE(step(false, 8));
      EXPECT_TRUE(step(rank.rank == 0, 0));  // a micro-batch without items
    });
  }
}

TEST(BadInput, ARankThatComputesOtherBitsIsRefusedWithBothValues) {
  testing::run_ranks(3, [&](testing::RankContext& rank) {
    const std::string processor =
        rank.rank == 2 ? "kernels avx512, ONEDNN_MAX_CPU_ISA=AVX2" : "kernels avx512";
    const auto both = AllOf(HasSubstr("rank 2 computes with \""
                                      "kernels avx512, ONEDNN_MAX_CPU_ISA"
                                      "=AVX2; 1 thread a kernel\", rank 0 with \"kernels avx512; 1 "
                                      "thread a kernel\""),
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
