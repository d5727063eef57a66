// Expert parallelism through Strategy: weights agree with one process's within a tolerance. For a
// given number of expert-parallel ranks, no other option changes their bits.
#include <gmock/gmock.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>

#include "trireme/models/experts.h"
#include "trireme/models/models.h"
#include "trireme/models/module_block.h"
#include "trireme/strategy/hybrid_test.h"

namespace trireme::hybrid_expert_test {
namespace {

using namespace hybrid;
using ::testing::AllOf;
using ::testing::HasSubstr;

// The capacity is below an even share, so every step drops tokens.
models::Blocks mixtures(const std::string& precision = "fp64", double capacity = 0.8,
                        bool bias = true) {
  return models::make_gpt({.layers = 2,
                           .heads = 4,
                           .width = 16,
                           .block = kBlock,
                           .vocab = kVocab,
                           .bias = bias,
                           .experts = 4,
                           .capacity_factor = capacity,
                           .balance = 0.1,
                           .dropout = 0.1,
                           .precision = precision});
}

const Course kCourse{.sequences = 8};

TEST(HybridExperts, TrainTheModelOfOneProcess) {
  const Trained one = train(mixtures(), {.options = {.precision = "fp64", .ema = 0.9}}, kCourse);
  for (const int expert : {2, 4}) {
    for (const int tensor : {1, 2}) {
      const Layout layout{
          .data = expert,
          .options = {.expert = expert, .tensor = tensor, .precision = "fp64", .ema = 0.9}};
      expect_near(train(mixtures(), layout, kCourse), one, 1e-10, name_of(layout));
    }
  }
}

// Without dropped tokens and balance loss, the parts of a sequence are routed as the whole.
TEST(HybridExperts, GatedAndWithContextTrainTheModelOfOneProcess) {
  const models::Blocks model = models::make_gpt({.layers = 2,
                                                 .heads = 2,
                                                 .width = 16,
                                                 .block = kBlock,
                                                 .vocab = kVocab,
                                                 .activation = "swiglu",
                                                 .hidden = 24,
                                                 .experts = 4,
                                                 .capacity_factor = 4,
                                                 .balance = 0,
                                                 .precision = "fp64"});
  const Trained one = train(model, {.options = {.precision = "fp64"}}, kCourse);
  for (const auto& [context, tensor] : {std::pair{2, 1}, {1, 2}, {2, 2}}) {
    const Layout layout{
        .data = 2,
        .options = {.context = context, .expert = 2, .tensor = tensor, .precision = "fp64"}};
    expect_near(train(model, layout, kCourse), one, 1e-10, name_of(layout));
  }
}

// No biases: the gradient of a key bias is rounding error, which some optimizers would amplify.
TEST(HybridExperts, OfOtherOptimizersAreThoseOfOneProcess) {
  const models::Blocks model = mixtures("fp64", 0.8, false);
  for (const OptimizerOptions& optimizer :
       {OptimizerOptions{Lamb{.learning_rate = 1e-2}}, OptimizerOptions{Adafactor{}},
        OptimizerOptions{Sgd{.learning_rate = 1e-1, .momentum = 0.9}}}) {
    Course course = kCourse;
    course.optimizer = optimizer;
    const Trained one = train(model, {.options = {.precision = "fp64"}}, course);
    for (const char* sync : {"plain", "zero3"}) {
      const Layout layout{.data = 4, .options = {.sync = sync, .expert = 2, .precision = "fp64"}};
      expect_near(train(model, layout, course), one, 1e-10, name_of(layout));
    }
  }
}

TEST(HybridExperts, InSixteenAndThirtyTwoBitsTheLossIsNearOneProcesss) {
  for (const auto& [precision, tolerance] :
       {std::pair{"fp32", 1e-5}, {"bf16", 2e-2}, {"fp16", 3e-3}}) {
    const Trained one = train(mixtures(precision), {.options = {.precision = precision}}, kCourse);
    const Trained cut =
        train(mixtures(precision), {.data = 2, .options = {.expert = 2, .precision = precision}},
              kCourse);
    EXPECT_NEAR(cut.outcome.validation, one.outcome.validation, tolerance * one.outcome.validation)
        << precision;
  }
}

// Tests all layouts for the first base, and a third of them for each other base.
TEST(HybridExperts, WhatElseIsChosenChangesNoBit) {
  std::size_t kind = 0;
  for (const StrategyOptions& base : {StrategyOptions{.expert = 2, .precision = "fp32"},
                                      {.expert = 4, .precision = "fp32"},
                                      {.expert = 2, .tensor = 2, .precision = "fp32"},
                                      {.expert = 2, .precision = "bf16"}}) {
    const models::Blocks model = mixtures(base.precision);
    const Outcome reference = train(model, {.data = base.expert, .options = base}, kCourse).outcome;
    std::vector<Layout> layouts;
    const auto add = [&](int copies) -> StrategyOptions& {
      layouts.push_back({.data = copies * base.expert, .options = base});
      return layouts.back().options;
    };
    for (const char* sync : {"plain", "zero1", "zero2", "zero3"}) add(2).sync = sync;
    add(3);
    StrategyOptions& hybrid = add(4);
    hybrid.sync = "hybrid";
    hybrid.shard = 2;
    for (const char* recompute : {"selective", "full"}) add(1).recompute = recompute;
    for (const auto& [schedule, sync] :
         {std::pair{"gpipe", "plain"}, {"1f1b", "zero1"}, {"zb-h1", "zero2"}}) {
      StrategyOptions& pipeline = add(sync == std::string("plain") ? 1 : 2);
      pipeline.pipeline = 2;
      pipeline.schedule = schedule;
      pipeline.sync = sync;
    }
    for (std::size_t i = 0; i < layouts.size(); ++i) {
      if (kind > 0 && i % 3 != kind % 3) continue;
      EXPECT_EQ(train(model, layouts[i], kCourse).outcome, reference) << name_of(layouts[i]);
    }
    ++kind;
  }
}

TEST(HybridExperts, StateGoesOnAtAnyNumberOfRanks) {
  const auto layout = [](int expert, int data, const char* sync) {
    return Layout{.data = data,
                  .options = {.sync = sync, .expert = expert, .precision = "fp64", .ema = 0.9}};
  };
  const auto course = [](const Trained* from, int first, int last) {
    return Course{.from = from, .first = first, .last = last, .sequences = 8};
  };
  const Trained end = train(mixtures(), layout(1, 1, "plain"), course(nullptr, 0, 4));
  for (const Layout& one : {layout(1, 1, "plain"), layout(2, 2, "plain"), layout(2, 4, "zero3")}) {
    const Trained half = train(mixtures(), one, course(nullptr, 0, 2));
    for (const auto& [name, tensor] : half.state)
      EXPECT_FALSE(tensor.isnan().any().item<bool>()) << name << " has holes";
    for (const Layout& other :
         {layout(1, 2, "zero1"), layout(2, 4, "zero2"), layout(4, 4, "plain")}) {
      const Trained read = train(mixtures(), other, course(&half, 2, 2));
      for (const auto& [name, tensor] : half.state)
        EXPECT_TRUE(at::equal(read.state.at(name), tensor)) << name << ", " << name_of(other);
      EXPECT_EQ(read.outcome.hash, half.outcome.hash);
      const Trained rest = train(mixtures(), other, course(&half, 2, 4));
      EXPECT_NEAR(rest.outcome.validation, end.outcome.validation, 1e-9) << name_of(other);
    }
  }
}

// Two ranks cannot divide three sequences, so each computes all of them.
TEST(HybridExperts, EvaluateAndInferAnyNumberOfSequences) {
  const auto odd = [](int place, int places) {
    Batch batch = batch_of(100, 4, place, kernel::contiguous(places), 3);
    for (MicroBatch& micro : batch.micro) EXPECT_EQ(micro.field("tokens").size(0), 3);
    return batch;
  };
  double wanted = 0;
  at::Tensor logits;
  testing::run_ranks(1, [&](testing::RankContext& context) {
    Rank rank(context, mixtures(), {.precision = "fp64"});
    wanted = rank.strategy->evaluate({odd(0, 1)}, token_loss());
    logits = rank.strategy->infer(micro_batch(100, 0, 4, 3)).at(0);
  });
  for (const int pipeline : {1, 2}) {
    testing::run_ranks(4 * pipeline, [&](testing::RankContext& context) {
      Rank rank(context, mixtures(), {.pipeline = pipeline, .expert = 2, .precision = "fp64"});
      EXPECT_NEAR(rank.strategy->evaluate({odd(context.rank / 2 % 2, 2)}, token_loss()), wanted,
                  1e-10 * wanted);
      EXPECT_TRUE(at::allclose(rank.strategy->infer(micro_batch(100, 0, 4, 3)).at(0), logits, 1e-10,
                               1e-12));
      EXPECT_FALSE(rank.strategy->has_whole_weights());
    });
  }
}

// Which tokens are dropped does not depend on the number of ranks.
TEST(HybridExperts, DropWhatOneProcessDrops) {
  models::RoutingCounts one;
  testing::run_ranks(1, [&](testing::RankContext& context) {
    Rank rank(context, mixtures(), {.precision = "fp64"});
    const models::RoutingScope scope(one);
    rank.step(0, 8, 4);
  });
  EXPECT_GT(one.dropped, 0) << "nothing was tested";
  for (const int expert : {2, 4}) {
    std::mutex mutex;
    models::RoutingCounts all;
    testing::run_ranks(4, [&](testing::RankContext& context) {
      Rank rank(context, mixtures(), {.expert = expert, .precision = "fp64"});
      models::RoutingCounts own;
      {
        const models::RoutingScope scope(own);
        rank.step(0, 8, 4);
      }
      const std::lock_guard lock(mutex);
      all.choices += own.choices;
      all.dropped += own.dropped;
    });
    EXPECT_EQ(all.choices, one.choices) << expert;
    EXPECT_EQ(all.dropped, one.dropped) << expert;
  }
}

// All tokens choose the experts with the lowest numbers, so other ranks' experts have no rows.
TEST(HybridExperts, GoOnWhereOneExpertHasEverything) {
  const models::Blocks model = mixtures("fp64", 0.5);
  const auto train_lopsided = [&](int ranks, int expert) {
    std::map<std::string, at::Tensor> state;
    std::mutex mutex;
    testing::run_ranks(ranks, [&](testing::RankContext& context) {
      Rank rank(context, model, {.expert = expert, .precision = "fp64", .clip = 0.5});
      for (const NamedShard& shard : rank.strategy->state())
        if (shard.name.find("router.bias") != std::string::npos ||
            shard.name.find("router.weight") != std::string::npos)
          shard.local.zero_();  // equal probabilities: the lowest numbers win
      rank.strategy->restored(rank.strategy->metadata());
      for (int step = 0; step < 2; ++step) rank.step(step, 4, 8);
      const auto shards = rank.strategy->state();
      const std::lock_guard lock(mutex);
      gather(shards, state);
    });
    return state;
  };
  const auto one = train_lopsided(1, 1), four = train_lopsided(4, 4);
  ASSERT_EQ(four.size(), one.size());
  for (const auto& [name, whole] : one)
    EXPECT_LE((four.at(name) - whole).norm().item<double>(),
              1e-10 * whole.norm().item<double>() + 1e-18)
        << name;
}

TEST(HybridExperts, WhatIsNotFiniteIsSkippedByAll) {
  testing::run_ranks(4, [&](testing::RankContext& context) {
    Rank rank(context, mixtures(), {.expert = 2, .precision = "fp64", .skip_not_finite = 1});
    // The loss breaks on one of the two ranks that share the micro-batch.
    const Loss broken = [&](const models::Value& output, const MicroBatch& micro) {
      const at::Tensor loss = token_loss()(output, micro);
      return micro.index == 3 && context.rank % 2 == 1 ? loss / 0.0 : loss;
    };
    const std::string before = rank.strategy->weights_hash();
    const StepResult result =
        rank.strategy->step(batch_of(0, 8, rank.rank, rank.assignment), broken);
    EXPECT_THAT(result.skipped, HasSubstr("micro-batch 3"));
    EXPECT_EQ(rank.strategy->weights_hash(), before);
    EXPECT_TRUE(rank.step(2).skipped.empty());
    EXPECT_NE(rank.strategy->weights_hash(), before);
  });
}

TEST(HybridExperts, RefuseWhatDoesNotFitWithTheArithmetic) {
  EXPECT_THAT(refusal(3, mixtures("fp32"), {.expert = 2}),
              HasSubstr("parallel.expert = 2 does not divide data x shard: 3 = 1 x 2 "
                        "+ 1"));
  EXPECT_THAT(refusal(6, mixtures("fp32"), {.pipeline = 2, .expert = 2}),
              HasSubstr("6 ranks / 2 = 3, and 3 = 1 x 2 + 1"));
  EXPECT_THAT(refusal(3, mixtures("fp32"), {.expert = 3}), HasSubstr("4 / 3 leaves 1"));
  EXPECT_THAT(
      refusal(4, mixtures("fp32"), {.expert = 4}),
      AllOf(HasSubstr("2 sequences on 4 expert-parallel ranks leave 2"), HasSubstr("batch.micro")));
  EXPECT_THAT(refusal(2, mixtures("fp32"), {.sync = "local_sgd", .expert = 2}),
              HasSubstr("local_sgd\" cannot be combined with parallel.expert = 2"));
  EXPECT_THAT(refusal(4, mixtures("fp32"), {.data = 2, .expert = 2}),
              HasSubstr("parallel.data = 2, but the job has 4 ranks"));
  EXPECT_THAT(refusal(2, mixtures("fp32"), {.expert = 2, .tensor = 1, .compression = "bf16"}),
              HasSubstr("comm.compression"));
  const models::Blocks dense =
      models::make_gpt({.layers = 1, .heads = 2, .width = 16, .block = kBlock, .vocab = kVocab});
  EXPECT_THAT(refusal(2, dense, {.expert = 2}),
              AllOf(HasSubstr("no mixture of experts"), HasSubstr("model.experts")));
}

// Without the check, each rank would train a different model on its own sequences.
TEST(HybridExperts, BesideBlocksThatTakeNoSharedLayersAreRefusedByName) {
  models::Blocks model = mixtures("fp32");
  model.add("own", [] { return torch::nn::Linear(kVocab, kVocab); });
  EXPECT_THAT(refusal(2, model, {.expert = 2}),
              HasSubstr("the gradient of own.weight differs among ranks"));
}

}  // namespace
}  // namespace trireme::hybrid_expert_test
