// Pipelines through Strategy: every schedule gives the bits of one process.
#include <ATen/Functions.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>

#include <cmath>
#include <map>
#include <mutex>

#include "trireme/base/error.h"
#include "trireme/models/module_block.h"
#include "trireme/optim/optimizer.h"
#include "trireme/strategy/pipeline_training_test.h"
#include "trireme/tensor/functions/functions.h"

namespace trireme::pipeline_test {
namespace {

using namespace parallel::test;
using ::testing::HasSubstr;

const std::vector<Model>& models_under_test() {
  static const std::vector<Model> all = {
      {[] { return gpt(); }, token_loss()},
      {mlp, squared_loss(), Sgd{.learning_rate = 1e-3, .momentum = 0.9}}};
  return all;
}

TEST(Pipeline, RecomputationChangesNoBit) {
  const Model& model = models_under_test().front();
  const Outcome one = train_on(model, {});
  for (const char* schedule : {"1f1b", "zb-h1", "interleaved-1f1b"}) {
    for (const char* recompute : {"full", "every-2", "selective"}) {
      Layout layout{.pipeline = 2, .schedule = schedule, .recompute = recompute};
      EXPECT_EQ(train_on(model, layout), one) << name_of(layout) << ", " << recompute;
    }
  }
}

TEST(Pipeline, EndsWithTheBitsOfOneProcess) {
  for (const Model& model : models_under_test()) {
    const Outcome one = train_on(model, {});
    EXPECT_GT(one.norms.front(), 0.5) << "nothing is clipped";
    for (const Layout& layout :
         {Layout{2, 1, "gpipe"}, {2, 1, "1f1b"}, {4, 1, "gpipe"}, {4, 1, "1f1b"}, {2, 1, "naive"}})
      EXPECT_EQ(train_on(model, layout), one) << name_of(layout);
  }
}

// Batches of 5 give three pipelines 1, 2 and 2 micro-batches.
TEST(Pipeline, TimesDataParallelIsTheSameTraining) {
  for (const Model& model : models_under_test()) {
    const Outcome one = train_on(model, {});
    for (const Layout& layout : {Layout{2, 2}, {2, 3, "gpipe"}, {4, 2}})
      EXPECT_EQ(train_on(model, layout), one) << name_of(layout);
  }
}

// In a V schedule one rank holds the first stage and the last, which both use the tied embedding.
TEST(Pipeline, EverySchedulesBitsAreThoseOfOneProcess) {
  const Model model{[] { return gpt("fp32", 6); }, token_loss()};
  const Outcome one = train_on(model, {});
  for (const Layout& layout : {Layout{2, 1, "interleaved-1f1b"},
                               {2, 1, "breadth-first", 3},
                               {2, 2, "interleaved-1f1b", 4},
                               {4, 1, "zb-h1"},
                               {4, 1, "zb-h2"},
                               {2, 1, "zb-v"},
                               {4, 1, "zb-v"},
                               {2, 2, "dualpipe-v"}})
    EXPECT_EQ(train_on(model, layout), one) << name_of(layout);
}

// Eight layers, some of which share parameters. The first one repeats its input.
models::Blocks twice_tied() {
  models::Blocks all;
  for (int layer = 0; layer < 8; ++layer)
    all.add_block({.name = "l" + std::to_string(layer),
                   .make =
                       [layer] {
                         torch::nn::Linear linear(5 * kBlock, 5 * kBlock);
                         return models::make_block(
                             linear.ptr(), [layer, linear](std::vector<at::Tensor> in) mutable {
                               if (layer == 0) in[0] = in[0].repeat({1, 5});
                               return std::vector<at::Tensor>{linear->forward(in[0])};
                             });
                       },
                   .reads = {layer == 0 ? "numbers" : "l" + std::to_string(layer - 1)},
                   .writes = {}});
  all.tie("l7.weight", "l0.weight").tie("l4.bias", "l0.bias");
  return all.tie("l2.weight", "l1.weight");
}

// With several stages a rank gives the sums of l0 before those of l1, and another rank takes them in
// the other order. Weights are above net::kEagerBytes: their send may wait for the receive.
TEST(Pipeline, TiedParametersOfSeveralStagesKeepTheirSumsApart) {
  const Model model{twice_tied, [](const models::Value& output, const MicroBatch&) {
                      return output.at(0).pow(2).sum();
                    }};
  const Outcome one = train_on(model, {});
  for (const Layout& layout :
       {Layout{2, 1, "interleaved-1f1b"}, {2, 1, "zb-v"}, {2, 2, "interleaved-1f1b", 0, "zero1"}})
    EXPECT_EQ(train_on(model, layout), one) << name_of(layout);
}

TEST(Pipeline, EveryPrecisionAndOptimizer) {
  for (const char* precision : {"bf16", "fp16", "fp64"}) {
    const Model model{[&] { return gpt(precision); }, token_loss(), AdamW{.learning_rate = 1e-2},
                      precision};
    EXPECT_EQ(train_on(model, {2, 2}), train_on(model, {})) << precision;
  }
  for (const OptimizerOptions& optimizer : {OptimizerOptions(Lamb{}), {Adafactor{}}, {Lion{}}}) {
    const Model model{[] { return gpt("fp32", 2); }, token_loss(), optimizer};
    const Outcome one = train_on(model, {});
    EXPECT_EQ(train_on(model, {3, 1}), one);
    EXPECT_EQ(train_on(model, {2, 1, "zb-v"}), one);
  }
}

// The simulated clock does not advance while blocks compute, so the cut stays even. The trained
// bits are the same with and without measured blocks.
TEST(Pipeline, MeasuringBlocksLeavesNoTrace) {
  const auto hash = [](bool measured) {
    std::string result;
    testing::run_ranks(2, [&](testing::RankContext& rank) {
      StrategyOptions options{.pipeline = 2};
      if (measured) options.example = [] { return micro_batch(9, 0, 2); };
      Strategy strategy({.world = rank.world.get()}, gpt(), options,
                        optim::make_optimizer(AdamW{}));
      strategy.step(batch_of(0, 4, 0, {1, 1}), token_loss());
      const std::string own = strategy.weights_hash();
      if (rank.rank == 0) result = own;
    });
    return result;
  };
  EXPECT_EQ(hash(true), hash(false));
}

// The stages that hold the tied embedding cut it differently among owners. In batches of 5 one
// pipeline has a micro-batch less than the other.
TEST(Pipeline, TimesZero1IsTheSameTraining) {
  for (const char* precision : {"fp32", "bf16"}) {
    const Model model{[&] { return gpt(precision); }, token_loss(), AdamW{.learning_rate = 1e-2},
                      precision};
    const Outcome one = train_on(model, {});
    for (const Layout& layout : {Layout{2, 2, "1f1b", 0, "zero1"},
                                 {2, 3, "gpipe", 0, "zero1"},
                                 {4, 2, "zb-h1", 0, "zero1"},
                                 {2, 2, "zb-v", 0, "zero1"},
                                 {2, 3, "dualpipe-v", 0, "zero1"}})
      EXPECT_EQ(train_on(model, layout), one) << name_of(layout) << ", " << precision;
  }
  const Model model{[] { return gpt(); }, token_loss(), Lamb{}};
  EXPECT_EQ(train_on(model, {2, 2, "zb-v", 0, "zero1"}), train_on(model, {}));
}

// Every micro-batch's leaves are sent to their owners, who add them as they come: nobody waits for
// a peer that may be at another pass. In batches of 5 some pipelines have a micro-batch less.
TEST(Pipeline, TimesZero2IsTheSameTraining) {
  for (const char* precision : {"fp32", "bf16"}) {
    const Model model{[&] { return gpt(precision); }, token_loss(), AdamW{.learning_rate = 1e-2},
                      precision};
    const Outcome one = train_on(model, {});
    for (const Layout& layout : {Layout{2, 2, "1f1b", 0, "zero2"},
                                 {2, 3, "gpipe", 0, "zero2"},
                                 {4, 2, "zb-h1", 0, "zero2"},
                                 {2, 2, "interleaved-1f1b", 0, "zero2", "full"},
                                 {2, 2, "zb-v", 0, "zero2"},
                                 {2, 3, "dualpipe-v", 0, "zero2"}})
      EXPECT_EQ(train_on(model, layout), one) << name_of(layout) << ", " << precision;
  }
  const Model model{[] { return gpt(); }, token_loss(), Lamb{}};
  EXPECT_EQ(train_on(model, {2, 2, "zb-v", 0, "zero2"}), train_on(model, {}));
}

// Three tensors of one value cross the cut: one that is used, an int64 one, and one that nobody
// reads. The first block's value is read in its own stage and two stages later.
struct Split : torch::nn::Module {
  Split() { table = register_module("table", torch::nn::Embedding(kVocab, 8)); }
  std::vector<at::Tensor> forward(const at::Tensor& tokens) {
    const at::Tensor rows = table(tokens);
    return {rows, tokens + 1, rows.sum(-1)};
  }
  torch::nn::Embedding table{nullptr};
};
struct Mix : torch::nn::Module {
  Mix() { linear = register_module("linear", torch::nn::Linear(8, 8)); }
  at::Tensor forward(const at::Tensor& rows, const at::Tensor& marks, const at::Tensor&) {
    return at::tanh(linear(rows).transpose(0, 1)) * marks.transpose(0, 1).unsqueeze(-1).ne(2);
  }
  torch::nn::Linear linear{nullptr};
};
struct End : torch::nn::Module {
  End() { linear = register_module("linear", torch::nn::Linear(8, kVocab)); }
  at::Tensor forward(const at::Tensor& mixed, const at::Tensor& rows, const at::Tensor& marks,
                     const at::Tensor&) {
    return linear(mixed.transpose(0, 1) + rows * marks.unsqueeze(-1).to(at::kFloat));
  }
  torch::nn::Linear linear{nullptr};
};
models::Blocks branching() {
  models::Blocks blocks;
  blocks.add("split", [] { return Split(); });
  blocks.add("mix", [] { return Mix(); });
  blocks.add("between", [] { return [](const at::Tensor& x) { return x * 2; }; });
  blocks.add_block({.name = "end",
                    .make = [] { return models::as_block(End()); },
                    .reads = {"between", "split"}});
  return blocks;
}

TEST(Pipeline, AnyTensorsCrossAndValuesAreHandedOn) {
  const Model model{branching, token_loss()};
  const Outcome one = train_on(model, {});
  for (const Layout& layout : {Layout{2, 1}, {4, 1}, {4, 1, "zb-h1"}, {2, 1, "zb-v"}, {3, 2}})
    EXPECT_EQ(train_on(model, layout), one) << name_of(layout);
}

Strategy strategy_of(testing::RankContext& rank, const models::Blocks& model,
                     StrategyOptions options) {
  return {parallel::StrategyContext{.world = rank.world.get()}, model, std::move(options),
          optim::make_optimizer(AdamW{.learning_rate = 1e-2})};
}

TEST(Pipeline, APassThatThrowsIsNamedOnAllRanksAndNothingIsApplied) {
  for (const int failing_step : {0, 1}) {  // before and after shapes are agreed
    testing::run_ranks(4, [&](testing::RankContext& rank) {
      Strategy strategy = strategy_of(rank, gpt(), {.pipeline = 4});
      Loss loss = token_loss();
      const auto batch = [](int step) { return batch_of(step * 2, 8, 0, {1, 1}); };
      if (failing_step == 1) strategy.step(batch(0), loss);
      const std::string before = strategy.weights_hash();
      loss = [&](const models::Value& output, const MicroBatch& micro) {
        if (micro.index == 3) throw std::out_of_range("no such word");
        return token_loss()(output, micro);
      };
      try {
        strategy.step(batch(1), loss);
        ADD_FAILURE() << "the step was applied";
      } catch (const StepRefused& error) {
        EXPECT_EQ(error.peer(), 3);
        EXPECT_THAT(error.what(), HasSubstr("no such word"));
      }
      EXPECT_EQ(strategy.weights_hash(), before);
      strategy.step(batch(2), token_loss());
      EXPECT_NE(strategy.weights_hash(), before);
    });
  }
}

// Buckets of passes that were not run are still exchanged.
TEST(Pipeline, AStepRefusedAmongOwnersLeavesNothingBehind) {
  const auto hash = [](const Layout& layout, bool fails) {
    std::string result;
    testing::run_ranks(layout.pipeline * layout.data, [&](testing::RankContext& rank) {
      kernel::Assignment assignment{1, 1};
      parallel::StrategyContext env{.world = rank.world.get()};
      env.assign = [&](const kernel::Assignment& dealt) { assignment = dealt; };
      Strategy strategy(env, gpt(),
                        {.sync = layout.sync, .pipeline = layout.pipeline, .bucket_bytes = 2048},
                        optim::make_optimizer(AdamW{.learning_rate = 1e-2}));
      const auto batch = [&](int step) { return batch_of(step, 8, rank.rank, assignment); };
      strategy.step(batch(0), token_loss());
      const Loss failing = [](const models::Value& output, const MicroBatch& micro) {
        if (micro.index == 3) throw std::out_of_range("no such word");
        return token_loss()(output, micro);
      };
      if (fails) {
        EXPECT_THROW(strategy.step(batch(1), failing), StepRefused);
      }
      strategy.step(batch(2), token_loss());
      const std::string own = strategy.weights_hash();
      if (rank.rank == 0) result = own;
    });
    return result;
  };
  const std::string one = hash({}, false);
  for (const char* sync : {"plain", "zero1", "zero2"})
    EXPECT_EQ(hash({2, 2, "1f1b", 0, sync}, true), one) << sync;
}

TEST(Pipeline, AnotherShapeOnStepTwoIsRefusedWithBothShapes) {
  testing::run_ranks(2, [&](testing::RankContext& rank) {
    int step = 0;
    models::Blocks model;
    model.add("first", [&] {
      return [&](const at::Tensor& x) { return at::zeros({x.size(0), step == 0 ? 4 : 5}); };
    });
    model.add("second", [] { return torch::nn::Linear(4, 3); });
    model.add_block({.name = "wide", .make = [] {
                       return models::as_block([](const at::Tensor& x) { return x; });
                     }});
    Strategy strategy = strategy_of(rank, model, {.pipeline = 2});
    const Loss loss = [](const models::Value& output, const MicroBatch&) {
      return output.at(0).sum();
    };
    strategy.step(batch_of(0, 4, 0, {1, 1}), loss);
    step = 1;
    try {
      strategy.step(batch_of(2, 4, 0, {1, 1}), loss);
      ADD_FAILURE() << "the step was applied";
    } catch (const StepRefused& error) {
      EXPECT_THAT(error.what(), HasSubstr("\"first\" as F32 [2, 5]"));
      EXPECT_THAT(error.what(), HasSubstr("the agreed layout is F32 [2, 4]"));
      EXPECT_EQ(error.peer(), 0);
    }
  });
}

// A rank that was told ends its loop, and a rank that waits for it may see PeerLost instead. The
// job's first error counts, and that one names the loop. The rank whose loop has ended lives on, as the
// process of a job does until all ranks end: the message that names it may take longer than its end.
TEST(Pipeline, ALoopThatEndsEarlyIsNamedToRanksThatWaitForActivations) {
  for (const int ranks : {2, 3, 4}) {
    for (std::uint64_t seed = 1; seed <= 10; ++seed) {
      int named = 0, bereft = 0;
      std::mutex mutex;
      const auto train = [&](testing::RankContext& rank) {
        Strategy strategy = strategy_of(rank, gpt(), {.pipeline = ranks});
        strategy.step(batch_of(0, 4, 0, {1, 1}), token_loss());
        if (rank.rank == 1) return;
        try {
          strategy.step(batch_of(2, 4, 0, {1, 1}), token_loss());
          ADD_FAILURE() << "the step was applied";
        } catch (const UnevenInput& error) {
          EXPECT_EQ(error.peer(), 1);
          const std::lock_guard lock(mutex);
          ++named;
        } catch (const PeerLost&) {
          const std::lock_guard lock(mutex);
          ++bereft;
        }
      };
      testing::run_ranks(ranks,
                         [&](testing::RankContext& rank) {
                           train(rank);
                           if (rank.rank == 1) rank.waiter->sleep(std::chrono::seconds(1));
                         },
                         {.seed = seed});
      EXPECT_GE(named, 1) << ranks << " ranks, seed " << seed;
      EXPECT_EQ(named + bereft, ranks - 1);
    }
  }
}

TEST(Pipeline, TheLastValueReachesEveryRank) {
  at::Tensor one;
  testing::run_ranks(1, [&](testing::RankContext& rank) {
    one = strategy_of(rank, gpt(), {}).infer(micro_batch(0, 0, 2)).at(0);
  });
  testing::run_ranks(4, [&](testing::RankContext& rank) {
    Strategy strategy = strategy_of(rank, gpt(), {.pipeline = 2});
    EXPECT_FALSE(strategy.has_whole_weights());
    EXPECT_TRUE(at::equal(strategy.infer(micro_batch(0, 0, 2)).at(0), one));
  });
}

// Saved by two stages; resumed by four, and by one rank.
TEST(Pipeline, StateGoesOnAtAnyPipelineSize) {
  struct Saved {
    std::map<std::string, at::Tensor> tensors;
    std::string metadata, hash;
  };
  const auto run = [](const Layout& layout, const Saved* from, int first, int last) {
    Saved saved;
    std::mutex mutex;
    testing::run_ranks(layout.pipeline * layout.data, [&](testing::RankContext& rank) {
      Strategy strategy = strategy_of(
          rank, gpt(), {.pipeline = layout.pipeline, .schedule = layout.schedule, .ema = 0.9});
      if (from != nullptr) {
        for (const NamedShard& shard : strategy.state())
          shard.local.copy_(from->tensors.at(shard.name).view_as(shard.local));
        strategy.restored(from->metadata);
      }
      for (int step = first; step < last; ++step)
        strategy.step(batch_of(step, 8, rank.rank, {layout.data, 1}), token_loss());
      const auto state = strategy.state();
      const std::string hash = strategy.weights_hash();
      const std::lock_guard lock(mutex);
      saved.metadata = strategy.metadata();
      saved.hash = hash;
      for (const NamedShard& shard : state) saved.tensors[shard.name] = shard.local.clone();
    });
    return saved;
  };
  const Saved half = run({}, nullptr, 0, 2), end = run({}, nullptr, 0, 4);
  for (const Layout& layout : {Layout{2, 1}, {4, 2}, {2, 1, "zb-v"}}) {
    const Saved own = run(layout, nullptr, 0, 2);
    EXPECT_EQ(own.tensors.size(), half.tensors.size()) << name_of(layout);
    for (const auto& [name, tensor] : half.tensors)
      EXPECT_TRUE(at::equal(own.tensors.at(name).flatten(), tensor.flatten())) << name;
    EXPECT_EQ(run(layout, &half, 2, 4).hash, end.hash) << name_of(layout);
    EXPECT_EQ(run({}, &own, 2, 4).hash, end.hash) << name_of(layout);
  }
}

// Each rank of a pipeline would update its copy of the tied tensor in another way.
models::Blocks tied_with(const models::NamedTensor& other) {
  class Scale final : public models::Block {
   public:
    explicit Scale(models::NamedTensor weight) : weight_(std::move(weight)) {
      weight_.tensor = weight_.tensor.clone().set_requires_grad(true);
    }
    models::Value forward(std::span<const models::Value> inputs) override {
      return {inputs[0].at(0) * weight_.tensor};
    }
    std::vector<models::NamedTensor> parameters() override { return {weight_}; }
    std::vector<models::NamedTensor> buffers() override { return {}; }
    void train(bool) override {}

   private:
    models::NamedTensor weight_;
  };
  models::Blocks all;
  all.add("a", [] {
    return std::make_shared<Scale>(models::NamedTensor{"weight", at::ones({2})});
  });
  all.add("b", [other] { return std::make_shared<Scale>(other); });
  return all.tie("b.weight", "a.weight");
}

TEST(Pipeline, RefusesWhatDoesNotFitWithTheArithmetic) {
  const auto refusal = [](int ranks, const models::Blocks& model, const StrategyOptions& options) {
    std::string message;
    testing::run_ranks(ranks, [&](testing::RankContext& rank) {
      try {
        strategy_of(rank, model, options);
        ADD_FAILURE() << "it was accepted";
      } catch (const ConfigError& error) {
        if (rank.rank == 0) message = error.what();
      }
    });
    return message;
  };
  EXPECT_THAT(refusal(8, gpt(), {.pipeline = 8}),
              HasSubstr("8 pipeline stages are more than the model's 5 blocks"));
  EXPECT_THAT(refusal(3, gpt(), {.pipeline = 2}), HasSubstr("3 = 1 x 2 + 1"));
  EXPECT_THAT(refusal(4, gpt(), {.pipeline = 2, .data = 4}),
              HasSubstr("4 x parallel.pipeline = 2 are 8 ranks, but the job has 4 ranks"));
  EXPECT_THAT(refusal(2, gpt(), {.pipeline = 2, .schedule = "2f2b"}), HasSubstr("1f1b"));
  EXPECT_THAT(refusal(2, gpt(), {.pipeline = 2, .chunks = 2}), HasSubstr("a rank holds one stage"));
  EXPECT_THAT(refusal(2, gpt(), {.sync = "local_sgd", .pipeline = 2}), HasSubstr("local_sgd"));
  EXPECT_THAT(refusal(2, gpt().tie("head.norm.weight", "layer.0.no.such"), {.pipeline = 2}),
              HasSubstr("layer.0.no.such"));
  for (const int ranks : {1, 2}) {
    const auto refusal_of = [&](const models::NamedTensor& other) {
      return refusal(ranks, tied_with(other), {.pipeline = ranks, .precision = "bf16"});
    };
    EXPECT_THAT(refusal_of({"weight", at::ones({2}), false}), HasSubstr("weight decay"));
    EXPECT_THAT(refusal_of({"weight", at::ones({2}, at::kBFloat16)}), HasSubstr("type"));
    EXPECT_THAT(refusal_of({"weight", at::ones({2}), true, {.sections = 2}}), HasSubstr("cut"));
  }
}

}  // namespace
}  // namespace trireme::pipeline_test
