// Tensor parallelism through Strategy, with all other axes on one mesh: weights agree with one
// process's within a tolerance. For a given number of tensor-parallel ranks, no other option
// changes their bits.
#include "trireme/strategy/hybrid_test.h"

#include <gmock/gmock.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>

#include <atomic>
#include <utility>

#include "trireme/models/models.h"
#include "trireme/models/module_block.h"

namespace trireme::hybrid_test {
namespace {

using namespace hybrid;
using ::testing::AnyOf;
using ::testing::HasSubstr;

models::Blocks gpt(const std::string& precision = "fp64") {
  return models::make_gpt({.layers = 3,
                           .heads = 4,
                           .width = 16,
                           .block = kBlock,
                           .vocab = kVocab,
                           .dropout = 0.1,
                           .precision = precision});
}

TEST(Hybrid, RanksThatShareLayersTrainTheModelOfOneProcess) {
  const models::Blocks bert = models::make_bert({.layers = 2,
                                                 .heads = 4,
                                                 .width = 16,
                                                 .block = kBlock,
                                                 .vocab = kVocab,
                                                 .dropout = 0.1,
                                                 .precision = "fp64"});
  for (const auto& [model, name] : {std::pair{gpt(), "gpt"}, {bert, "bert"}}) {
    const Trained one = train(model, {.options = {.precision = "fp64", .ema = 0.9}});
    for (const auto& [context, tensor, sequence] : {std::tuple{1, 2, false},
                                                    {1, 2, true},
                                                    {1, 4, false},
                                                    {1, 4, true},
                                                    {2, 1, false},
                                                    {4, 1, false},
                                                    {2, 2, false}}) {
      const Layout layout{.options = {.context = context,
                                      .tensor = tensor,
                                      .sequence = sequence,
                                      .precision = "fp64",
                                      .ema = 0.9}};
      expect_near(train(model, layout), one, 1e-10, name + std::string(", ") + name_of(layout));
    }
  }
}

TEST(Hybrid, InSixteenAndThirtyTwoBitsTheLossIsNearOneProcesss) {
  for (const auto& [precision, tolerance] :
       {std::pair{"fp32", 1e-5}, {"bf16", 2e-2}, {"fp16", 3e-3}}) {
    const Trained one = train(gpt(precision), {.options = {.precision = precision}});
    const Trained cut = train(gpt(precision), {.options = {.tensor = 2, .precision = precision}});
    EXPECT_NEAR(cut.outcome.validation, one.outcome.validation, tolerance * one.outcome.validation)
        << precision;
  }
}

TEST(Hybrid, WhatElseIsChosenChangesNoBit) {
  for (const StrategyOptions& base : {StrategyOptions{.tensor = 2, .precision = "fp32"},
                                      {.tensor = 2, .sequence = true, .precision = "fp32"},
                                      {.context = 2, .precision = "fp32"},
                                      {.context = 2, .tensor = 2, .precision = "fp32"}}) {
    const Outcome reference = train(gpt("fp32"), {.options = base}).outcome;
    std::vector<Layout> layouts;
    for (const char* sync : {"plain", "zero1", "zero2", "zero3"}) {
      layouts.push_back({.data = 2, .options = base});
      layouts.back().options.sync = sync;
    }
    layouts.push_back({.data = 4, .options = base});
    layouts.back().options.sync = "hybrid";
    layouts.back().options.shard = 2;
    for (const char* recompute : {"selective", "full"}) {
      layouts.push_back({.options = base});
      layouts.back().options.recompute = recompute;
    }
    for (const auto& [schedule, sync] :
         {std::pair{"gpipe", "plain"}, {"1f1b", "zero1"}, {"zb-h1", "plain"}, {"zb-h1", "zero3"}}) {
      layouts.push_back({.data = sync == std::string("plain") ? 1 : 2, .options = base});
      layouts.back().options.pipeline = 2;
      layouts.back().options.schedule = schedule;
      layouts.back().options.sync = sync;
    }
    for (const Layout& layout : layouts)
      EXPECT_EQ(train(gpt("fp32"), layout).outcome, reference) << name_of(layout);
  }
}

TEST(Hybrid, SixtyFourRanksTrainTheSameModel) {
  const StrategyOptions base{.context = 2, .tensor = 2, .precision = "fp32"};
  const Outcome one = train(gpt("fp32"), {.options = base}).outcome;
  for (const char* sync : {"zero1", "hybrid"}) {
    Layout layout{.data = 4, .options = base};
    layout.options.pipeline = 4;
    layout.options.sync = sync;
    layout.options.shard = sync == std::string("hybrid") ? 2 : 0;
    EXPECT_EQ(train(gpt("fp32"), layout).outcome, one) << name_of(layout);
  }
}

TEST(Hybrid, StateGoesOnAtAnyTensorSize) {
  const auto layout = [](int tensor, int data, const char* sync) {
    return Layout{.data = data,
                  .options = {.sync = sync, .tensor = tensor, .precision = "fp64", .ema = 0.9}};
  };
  const Course begin{.last = 2};
  const Trained end = train(gpt(), layout(1, 1, "plain"), {.last = 4});
  std::vector<Trained> halves;
  for (const Layout& one : {layout(1, 1, "plain"), layout(2, 1, "plain"), layout(4, 2, "zero3")})
    halves.push_back(train(gpt(), one, begin));
  for (const Trained& half : halves) {
    for (const auto& [name, tensor] : half.state)
      EXPECT_FALSE(tensor.isnan().any().item<bool>()) << name << " has holes";
    for (const Layout& one :
         {layout(1, 2, "zero1"), layout(2, 2, "zero2"), layout(4, 1, "plain")}) {
      const Trained read = train(gpt(), one, {.from = &half, .first = 2, .last = 2});
      for (const auto& [name, tensor] : half.state)
        EXPECT_TRUE(at::equal(read.state.at(name), tensor)) << name << ", " << name_of(one);
      EXPECT_EQ(read.outcome.hash, half.outcome.hash);
      const Trained rest = train(gpt(), one, {.from = &half, .first = 2, .last = 4});
      EXPECT_NEAR(rest.outcome.validation, end.outcome.validation, 1e-9) << name_of(one);
    }
  }
}

TEST(Hybrid, InferGivesWholeLogits) {
  std::vector<at::Tensor> values(5);
  for (const auto& [ranks, context, tensor] :
       {std::tuple{1, 1, 1}, {2, 1, 2}, {2, 2, 1}, {4, 2, 2}}) {
    testing::run_ranks(ranks, [&](testing::RankContext& one) {
      Rank rank(one, gpt(), {.context = context, .tensor = tensor, .precision = "fp64"});
      values[static_cast<std::size_t>(ranks == 1 ? 4 : one.rank)] =
          rank.strategy->infer(micro_batch(0, 0, 4)).at(0);
      EXPECT_EQ(rank.strategy->has_whole_weights(), ranks == 1);
    });
    for (int rank = 0; rank < ranks && ranks > 1; ++rank) {
      EXPECT_TRUE(at::equal(values[0], values[static_cast<std::size_t>(rank)])) << rank;
      EXPECT_TRUE(at::allclose(values[0], values[4], 1e-10, 1e-12)) << ranks;
    }
  }
}

TEST(Hybrid, WhatIsNotFiniteIsSkippedByAll) {
  testing::run_ranks(8, [&](testing::RankContext& context) {
    Rank rank(context, gpt(),
              {.context = 2, .tensor = 2, .precision = "fp64", .skip_not_finite = 1});
    // The loss breaks on one of the two context-parallel ranks.
    const Loss broken = [&](const models::Value& output, const MicroBatch& micro) {
      const at::Tensor loss = token_loss()(output, micro);
      return micro.index == 3 && context.rank / 2 % 2 == 1 ? loss / 0.0 : loss;
    };
    const std::string before = rank.strategy->weights_hash();
    const StepResult result =
        rank.strategy->step(batch_of(0, 8, rank.rank, rank.assignment), broken);
    EXPECT_THAT(result.skipped, HasSubstr("micro-batch 3"));
    EXPECT_EQ(rank.strategy->weights_hash(), before);
    EXPECT_TRUE(rank.step(1).skipped.empty());
    EXPECT_NE(rank.strategy->weights_hash(), before);
  });
}

TEST(Hybrid, RefusesWhatDoesNotFitWithTheArithmetic) {
  EXPECT_THAT(refusal(3, gpt("fp32"), {.tensor = 2}),
              HasSubstr("parallel.tensor = 2 does not divide the ranks: 3 = 1 x 2 + 1"));
  EXPECT_THAT(refusal(6, gpt("fp32"), {.pipeline = 2, .tensor = 2}),
              HasSubstr("2 x 2 = 4 does not divide the ranks: 6 = 1 x 4 + 2"));
  EXPECT_THAT(refusal(3, gpt("fp32"), {.tensor = 3}), HasSubstr("4 / 3 leaves 1"));
  EXPECT_THAT(refusal(2, gpt("fp32"), {.sync = "local_sgd", .tensor = 2}),
              HasSubstr("local_sgd\" cannot be combined with parallel.tensor = 2"));
  EXPECT_THAT(refusal(2, gpt("fp32"), {.tensor = 2}, Lamb{}),
              HasSubstr("lamb cannot be combined with parallel.tensor"));
  EXPECT_THAT(refusal(1, gpt("fp32"), {.sequence = true}), HasSubstr("parallel.tensor = 1"));
  EXPECT_THAT(refusal(3, gpt("fp32"), {.context = 3}), HasSubstr("8"));
  EXPECT_THAT(refusal(4, gpt("fp32"), {.context = 2, .tensor = 2, .sequence = true}),
              HasSubstr("parallel.context = 2"));
  models::Blocks plain;
  plain.add("layer", [] { return torch::nn::Linear(4, 4); });
  EXPECT_THAT(refusal(2, plain, {.tensor = 2}), HasSubstr("no layer of this model can be cut"));
}

// Without the check, each rank would train a different model on its part of the sequences.
TEST(Hybrid, BlocksThatTakeNoSharedLayersAreRefusedByName) {
  models::Blocks plain;
  plain.add("embed", [] { return torch::nn::Embedding(kVocab, 16); });
  plain.add("head", [] { return torch::nn::Linear(16, kVocab); });
  EXPECT_THAT(refusal(2, plain, {.context = 2}),
              HasSubstr("the gradient of embed.weight differs among ranks"));
}

// Returns what a rank throws in a step of `batch`, and in the next. Nobody waits for a deadline.
std::pair<std::string, std::string> thrown_by(testing::RankContext& context, Rank& rank,
                                              const Batch& batch) {
  const TimePoint begin = context.waiter->now();
  const auto said = [&](const Batch& given) -> std::string {
    try {
      rank.strategy->step(given, token_loss());
    } catch (const Error& error) {
      return error.what();
    }
    return "nothing was thrown";
  };
  std::pair<std::string, std::string> both;
  both.first = said(batch);
  both.second = said(batch_of(1, 8, rank.rank, rank.assignment));
  EXPECT_LT(context.waiter->now() - begin, std::chrono::seconds(10)) << both.first;
  return both;
}

TEST(Hybrid, SequencesThatSomeRanksCannotCutEndTheStepOfAll) {
  testing::run_ranks(4, [&](testing::RankContext& context) {
    Rank rank(context, gpt("fp32"), {.context = 2});
    Batch batch = batch_of(0, 8, rank.rank, rank.assignment);
    const bool odd = context.rank / 2 == 1;  // these two have other micro-batches
    for (MicroBatch& micro : batch.micro)
      for (auto& [name, field] : micro.fields)
        if (odd) field = field.narrow(1, 0, kBlock - 1).contiguous();
    const auto [first, second] = thrown_by(context, rank, batch);
    // One of the two may hear of the other first.
    const auto gave_up = HasSubstr("gave up");
    const auto cannot = HasSubstr("sequences of 7 positions on 2 context-parallel ranks");
    EXPECT_THAT(first, AnyOf(gave_up, odd ? cannot : gave_up)) << context.rank;
    EXPECT_THAT(second, AnyOf(HasSubstr("gave up"), first)) << context.rank;
  });
}

TEST(Hybrid, AShareThatIsNotARanksOwnEndsTheStepOfAll) {
  for (const char* sync : {"plain", "zero3"})
    testing::run_ranks(4, [&](testing::RankContext& context) {
      Rank rank(context, gpt("fp32"), {.sync = sync, .tensor = 2});
      Batch batch = batch_of(0, 8, rank.rank, rank.assignment);
      if (context.rank == 3) batch.micro.pop_back();
      const auto [first, second] = thrown_by(context, rank, batch);
      EXPECT_THAT(first, HasSubstr(context.rank == 3 ? "rank 3 refuses the step: it was given 3 "
                                                       "micro-batches, but its share is 4"
                                                     : "gave up"))
          << sync << ", rank " << context.rank;
      EXPECT_THAT(second, AnyOf(HasSubstr("gave up"), first)) << sync << ", rank " << context.rank;
    });
}

TEST(Hybrid, ATokenOutsideTheVocabularyIsNamedOnEveryRank) {
  std::atomic<int> named = 0;
  testing::run_ranks(2, [&](testing::RankContext& context) {
    Rank rank(context, gpt("fp32"), {.tensor = 2});
    Batch batch = batch_of(0, 2, rank.rank, rank.assignment);
    batch.micro[1].fields[0].second[0][3] = kVocab;
    try {
      rank.strategy->step(batch, token_loss());
    } catch (const ConfigError& error) {
      EXPECT_THAT(error.what(), HasSubstr("token 22 is outside the vocabulary of 22"));
      ++named;
    }
  });
  EXPECT_EQ(named, 2);
}

}  // namespace
}  // namespace trireme::hybrid_test
