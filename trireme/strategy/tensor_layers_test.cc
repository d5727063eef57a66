// Tensor parallelism: losses and gradients of models cut among ranks, compared with one process.
#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/linear.h>

#include <limits>
#include <map>

#include "trireme/base/error.h"
#include "trireme/layers/tensor/layers.h"
#include "trireme/layers/tensor/part.h"
#include "trireme/layers/tensor/regions.h"
#include "trireme/memory/recompute.h"
#include "trireme/models/models.h"
#include "trireme/models/module_block.h"
#include "trireme/placement/stage.h"
#include "trireme/strategy/strategy.h"
#include "trireme/tensor/determinism.h"
#include "trireme/tensor/functions/functions.h"
#include "trireme/tensor/random.h"
#include "trireme/testing/run_ranks.h"

namespace trireme::tensor_layers_test {
namespace {

constexpr std::int64_t kLength = 12, kVocab = 22;

struct Parameter {
  at::Tensor gradient;
  models::Part part;
};
struct Outcome {
  double loss = 0, no_grad_loss = 0;
  std::vector<std::int64_t> infer_sizes;
  std::map<std::string, Parameter> parameters;
};

MicroBatch text() {
  at::Tensor noise = at::empty({3, kLength + 1}, at::kFloat);
  tensor::fill_uniform(noise, 7, "text", 0, static_cast<double>(kVocab));
  const at::Tensor tokens = noise.to(at::kLong).clamp(0, kVocab - 1);
  at::Tensor targets = tokens.narrow(1, 1, kLength).clone();
  targets.select(1, 3).fill_(-1);  // is ignored
  return {.count = 3 * (kLength - 1),
          .fields = {{"tokens", tokens.narrow(1, 0, kLength).contiguous()}, {"targets", targets}}};
}

Outcome compute(const models::Blocks& blocks, const MicroBatch& micro, const Loss& loss) {
  parallel::Stage stage(blocks, 1);
  stage.train(true);
  const at::Tensor sum = loss(stage.forward(micro, 0), micro);
  sum.backward();
  Outcome outcome{.loss = sum.item<double>()};
  for (const auto& member : stage.members())
    for (const models::NamedTensor& own : member.block->parameters())
      outcome.parameters[member.name + "." + own.name] = {own.tensor.grad(), own.part};
  const c10::AutoGradMode off(false);
  const models::Value value = stage.forward(micro, 0);
  outcome.no_grad_loss = loss(value, micro).item<double>();
  outcome.infer_sizes = value.at(0).sizes().vec();
  return outcome;
}

using Build = std::function<models::Blocks()>;

void expect_as_one_process(const Build& build, const MicroBatch& micro, const Loss& loss,
                           double tolerance, bool with_sequence = true) {
  tensor::set_up_process({});
  const Outcome one = compute(build(), micro, loss);
  for (const bool sequence : {false, true}) {
    if (sequence && !with_sequence) continue;
    for (const int ranks : {1, 2, 3, 4}) {
      std::vector<Outcome> all(static_cast<std::size_t>(ranks));
      testing::run_ranks(ranks, [&](testing::RankContext& rank) {
        const models::LayersScope layers(parallel::tensor_layers(*rank.world, sequence));
        all[static_cast<std::size_t>(rank.rank)] = compute(build(), micro, loss);
      });
      const std::string where =
          std::to_string(ranks) + (sequence ? " ranks, sequence parallel" : " ranks");
      for (const Outcome& own : all) {
        EXPECT_EQ(own.loss, all[0].loss) << where;
        EXPECT_EQ(own.infer_sizes, one.infer_sizes) << where;
        EXPECT_NEAR(own.loss, one.loss, tolerance * std::abs(one.loss)) << where;
        EXPECT_NEAR(own.no_grad_loss, one.no_grad_loss, tolerance * std::abs(one.loss)) << where;
      }
      for (const auto& [name, whole] : one.parameters) {
        std::vector<at::Tensor> parts;
        const models::Part part = all[0].parameters.at(name).part;
        for (const Outcome& own : all) {
          const Parameter& mine = own.parameters.at(name);
          EXPECT_EQ(mine.part.of, part.of) << name;
          if (part.of == 1) {
            EXPECT_TRUE(at::equal(mine.gradient, all[0].parameters.at(name).gradient))
                << name << " differs between ranks: " << where;
          }
          parts.push_back(mine.gradient);
        }
        const at::Tensor joined = parallel::whole_of(parts, part);
        ASSERT_EQ(joined.sizes(), whole.gradient.sizes()) << name;
        const double distance = (joined - whole.gradient).norm().item<double>(),
                     length = whole.gradient.norm().item<double>();
        EXPECT_LE(distance, tolerance * length) << name << ": " << where;
      }
    }
  }
}

TEST(TensorLayers, GptIsThatOfOneProcess) {
  for (const auto& [precision, tolerance] : {std::pair{"fp64", 1e-12}, {"fp32", 1e-5}}) {
    for (const bool bias : {true, false}) {
      const Build build = [precision, bias] {
        return models::make_gpt({.layers = 2,
                                 .heads = 12,
                                 .width = 24,
                                 .block = kLength,
                                 .vocab = kVocab,
                                 .bias = bias,
                                 .precision = precision});
      };
      expect_as_one_process(build, text(), token_loss(), tolerance);
    }
  }
}

// A rank's columns of gate and value lie next to each other; a plain cut of the fused matrix would
// give one rank only gates.
TEST(TensorLayers, GatedMlpsAreCutByGateAndValue) {
  for (const std::string activation : {"swiglu", "geglu"}) {
    for (const int experts : {0, 2}) {
      const Build build = [&] {
        return models::make_gpt({.layers = 2,
                                 .heads = 12,
                                 .width = 24,
                                 .block = kLength,
                                 .vocab = kVocab,
                                 .bias = true,
                                 .activation = activation,
                                 .hidden = 36,
                                 .experts = experts,
                                 .precision = "fp64"});
      };
      expect_as_one_process(build, text(), token_loss(), 1e-12, experts == 0);
    }
  }
}

TEST(TensorLayers, BertIsThatOfOneProcess) {
  const Build build = [] {
    return models::make_bert({.layers = 2,
                              .heads = 12,
                              .width = 24,
                              .block = kLength,
                              .vocab = kVocab,
                              .precision = "fp64"});
  };
  expect_as_one_process(build, text(), token_loss(), 1e-12);
}

TEST(TensorLayers, MlpIsThatOfOneProcess) {
  at::Tensor features = at::empty({12, 10}, at::kDouble);
  tensor::fill_normal(features, 3, "features", 0, 1);
  const MicroBatch micro{.count = 12, .fields = {{"features", features}}};
  const Loss loss = [](const models::Value& output, const MicroBatch&) {
    return output.at(0).pow(2).sum();
  };
  for (const std::vector<std::int64_t>& widths :
       {std::vector<std::int64_t>{10, 24, 6}, {10, 24, 12, 36, 5}, {10, 24, 12, 7}}) {
    tensor::set_up_process({});
    const Build build = [&] { return models::make_mlp({.widths = widths, .precision = "fp64"}); };
    const Outcome one = compute(build(), micro, loss);
    for (const int ranks : {2, 3}) {
      testing::run_ranks(ranks, [&](testing::RankContext& rank) {
        const models::LayersScope layers(parallel::tensor_layers(*rank.world, false));
        const Outcome own = compute(build(), micro, loss);
        EXPECT_NEAR(own.loss, one.loss, 1e-12 * one.loss);
        for (const auto& [name, parameter] : own.parameters) {
          const at::Tensor whole = one.parameters.at(name).gradient;
          EXPECT_TRUE(at::allclose(parameter.gradient, parallel::part_of(whole, parameter.part),
                                   1e-10, 1e-12))
              << name;
        }
      });
    }
  }
}

TEST(TensorLayers, AreCutOutOfTheWholeOnes) {
  const models::Part part{.dim = 0, .index = 1, .of = 2, .sections = 3, .whole = 12};
  const at::Tensor whole = at::arange(12);
  EXPECT_TRUE(at::equal(parallel::part_of(whole, part), at::tensor({2, 3, 6, 7, 10, 11})));
  for (const models::Part& wanted : {part, models::Part{.dim = 0, .of = 5, .whole = 12}}) {
    std::vector<at::Tensor> parts;
    for (int index = 0; index < wanted.of; ++index) {
      models::Part own = wanted;
      own.index = index;
      parts.push_back(parallel::part_of(whole, own));
    }
    EXPECT_TRUE(at::equal(parallel::whole_of(parts, wanted), whole));
  }
}

// A group of 3 places x 2 tensor-parallel ranks.
TEST(TensorLayers, ExpertsAreOnOneOfTheirPlaces) {
  const at::Tensor whole = at::arange(12 * 5).view({12, 5});
  const models::Part none;
  for (const models::Part& part : {models::Part{.whole = 12, .holder = 1, .places = 3},
                                   {.dim = 1, .of = 2, .whole = 5, .holder = 2, .places = 3},
                                   {.dim = 0, .of = 2, .sections = 3, .whole = 12},
                                   none}) {
    std::vector<at::Tensor> parts;
    for (int rank = 0; rank < 6; ++rank) {
      const models::Part own = parallel::part_on(part, rank, 2);
      EXPECT_EQ(own.here(), part.places == 1 || rank / 2 == part.holder);
      const at::Tensor cut = parallel::part_of(whole, own);
      EXPECT_EQ(cut.numel() > 0, own.here());
      EXPECT_EQ(parallel::shape_of_part({12, 5}, own), cut.sizes().vec());
      EXPECT_EQ(parallel::shape_of_whole(cut.sizes().vec(), own), whole.sizes().vec());
      if (parallel::is_first_with(part, rank, 2)) parts.push_back(cut);
      const NamedShard shard{.name = "w",
                             .dtype = DType::I64,
                             .shape = cut.sizes().vec(),
                             .end = cut.numel(),
                             .local = cut};
      EXPECT_EQ(parallel::shards_of_whole(shard, own).empty(), !own.here());
    }
    EXPECT_EQ(parts.size(), static_cast<std::size_t>(part.of));
    EXPECT_TRUE(at::equal(parallel::whole_of(parts, part), whole));
  }
}

TEST(TensorLayers, ShardsOfPartsLieWhereTheWholeTensorHasThem) {
  const at::Tensor whole = at::arange(6 * 8 * 3).view({6, 8, 3});
  for (const int dim : {0, 1, 2}) {
    for (const int sections : {1, 2, 3}) {
      for (const int of : {1, 2, 3}) {
        const std::int64_t size = whole.size(dim);
        if (size % sections != 0 || size / sections < of) continue;
        at::Tensor found = at::full({whole.numel()}, -1, whole.options());
        for (int index = 0; index < of; ++index) {
          const models::Part part{
              .dim = dim, .index = index, .of = of, .sections = sections, .whole = size};
          const at::Tensor own = parallel::part_of(whole, part);
          // In two intervals, as owners of one part hold it.
          for (const auto& [begin, end] :
               {std::pair<std::int64_t, std::int64_t>{0, 7}, {7, own.numel()}}) {
            const NamedShard shard{.name = "w",
                                   .dtype = DType::I64,
                                   .shape = own.sizes().vec(),
                                   .begin = begin,
                                   .end = end,
                                   .local = own.flatten().narrow(0, begin, end - begin)};
            for (const NamedShard& one : parallel::shards_of_whole(shard, part)) {
              EXPECT_EQ(one.shape, whole.sizes().vec());
              EXPECT_TRUE(one.local.is_alias_of(own));
              found.narrow(0, one.begin, one.end - one.begin).copy_(one.local);
            }
          }
        }
        EXPECT_TRUE(at::equal(found, whole.flatten())) << dim << " " << sections << " " << of;
      }
    }
  }
}

// A classifier has as many classes as rank 0 has rows of the vocabulary.
TEST(TensorLayers, ScoresOfClassesAreNotTakenForLogitsOfTheVocabulary) {
  tensor::set_up_process({});
  const at::Tensor tokens = at::arange(10).view({2, 5}).remainder(9), labels = tokens.remainder(4);
  testing::run_ranks(2, [&](testing::RankContext& rank) {
    const auto layers = parallel::tensor_layers(*rank.world, false);
    const models::LayerContext context{.block = "b"};
    const auto vocabulary = layers->vocabulary(context, {.name = "table", .rows = 9, .width = 6});
    const auto classes = layers->linear(context, {.name = "classes", .in = 6, .out = 4});
    const at::Tensor hidden = vocabulary->embed(tokens, {}), scores = classes->forward(hidden);
    EXPECT_EQ(layers->cross_entropy_sum(scores, labels).item<double>(),
              tensor::cross_entropy_sum(scores, labels).item<double>());
    const at::Tensor cut = vocabulary->logits(hidden);
    EXPECT_EQ(cut.size(-1), rank.rank == 0 ? 4 : 5);
    const auto whole = [&] {
      const c10::AutoGradMode off(false);
      return vocabulary->logits(hidden);
    }();
    const auto sum = [&](const at::Tensor& logits) {
      return layers->cross_entropy_sum(logits, tokens.view_as(logits.select(-1, 0))).item<double>();
    };
    const double wanted = tensor::cross_entropy_sum(whole, tokens).item<double>();
    EXPECT_NEAR(sum(cut), wanted, 1e-5);
    EXPECT_NEAR(sum(cut.flatten(0, 1).to(at::kDouble)), wanted, 1e-5);
    EXPECT_NEAR(sum(cut * 1), wanted, 1e-5);
  });
}

// Logits of -inf hide columns, and an ignored position may have any.
TEST(TensorLayers, TheLossLeavesInfiniteLogitsOutThatDoNotCount) {
  constexpr std::int64_t kColumns = 6;
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const at::Tensor logits = at::arange(4 * kColumns, at::kDouble).view({4, kColumns}).cos();
  logits.narrow(1, 3, 2).fill_(-kInfinity);
  logits.select(0, 3).fill_(kInfinity);
  const at::Tensor targets = at::arange(4, at::kLong);
  targets.select(0, 3).fill_(-1);
  const at::Tensor whole = logits.narrow(0, 0, 3).clone().set_requires_grad(true);
  const at::Tensor wanted = -whole.log_softmax(-1).diagonal().sum();
  wanted.backward();
  for (const int ranks : {2, 3}) {
    testing::run_ranks(ranks, [&](testing::RankContext& rank) {
      const std::int64_t width = kColumns / ranks, begin = rank.rank * width;
      const at::Tensor own = logits.narrow(1, begin, width).clone().set_requires_grad(true);
      const at::Tensor loss =
          parallel::cut_cross_entropy_sum(own, targets, begin, kColumns, *rank.world);
      loss.backward();
      EXPECT_NEAR(loss.item<double>(), wanted.item<double>(), 1e-12);
      EXPECT_TRUE(
          at::allclose(own.grad().narrow(0, 0, 3), whole.grad().narrow(1, begin, width), 1e-10));
      EXPECT_TRUE(at::equal(own.grad().select(0, 3), at::zeros({width}, at::kDouble)));
    });
  }
}

// The later stage would take a rank's columns for all of them.
TEST(TensorLayers, RefuseAPipelineCutBetweenCutLogitsAndTheirReader) {
  testing::run_ranks(2, [&](testing::RankContext& rank) {
    const models::LayersScope layers(parallel::tensor_layers(*rank.world, false));
    models::Blocks blocks =
        models::make_gpt({.layers = 1, .heads = 2, .width = 8, .block = kLength, .vocab = kVocab});
    const std::size_t head = blocks.specs().size() - 1;
    blocks.add("after", [] { return torch::nn::Identity(); });
    const auto refused = [&](std::size_t end) {
      parallel::Stage stage(blocks, 1, {}, {.first = 0, .end = end});
      try {
        stage.forward(parallel::Values(), text(), 0);
      } catch (const ConfigError& error) {
        return std::string(error.what());
      }
      return std::string();
    };
    EXPECT_NE(refused(head + 1).find("columns of a vocabulary's logits"), std::string::npos);
    EXPECT_EQ(refused(head), "");
    EXPECT_EQ(refused(head + 2), "");
    const c10::AutoGradMode off(false);  // logits are whole
    EXPECT_EQ(refused(head + 1), "");
  });
}

// Its first run, without gradients, gives whole logits, the second a rank's columns.
TEST(TensorLayers, RefuseToRecomputeAHeadWhoseLogitsAnotherBlockReads) {
  testing::run_ranks(2, [&](testing::RankContext& rank) {
    const models::LayersScope layers(parallel::tensor_layers(*rank.world, false));
    models::Blocks blocks =
        models::make_gpt({.layers = 1, .heads = 2, .width = 8, .block = kLength, .vocab = kVocab});
    blocks.add("after", [] { return torch::nn::Identity(); });
    parallel::Stage stage(blocks, 1);
    stage.recompute({.kind = memory::Recompute::Full});
    const at::Tensor loss = token_loss()(stage.forward(text(), 0), text());
    try {
      loss.backward();
      ADD_FAILURE() << "was not refused";
    } catch (const ConfigError& error) {
      const std::string said = error.what();
      EXPECT_NE(said.find("computed again"), std::string::npos) << said;
      EXPECT_NE(said.find("logits"), std::string::npos) << said;
    }
  });
}

TEST(TensorLayers, RefuseWhatDoesNotDivide) {
  const auto refusal = [](int ranks, const models::GptConfig& config, bool sequence = false) {
    std::string text_of;
    testing::run_ranks(ranks, [&](testing::RankContext& rank) {
      const models::LayersScope layers(parallel::tensor_layers(*rank.world, sequence));
      try {
        compute(models::make_gpt(config), text(), token_loss());
      } catch (const ConfigError& error) {
        if (rank.rank == 0) text_of = error.what();
      }
    });
    return text_of;
  };
  models::GptConfig config{.layers = 1, .heads = 6, .width = 24, .block = kLength, .vocab = kVocab};
  EXPECT_NE(refusal(4, config).find("6 / 4 leaves 2"), std::string::npos) << refusal(4, config);
  config.heads = 10;
  config.width = 20;
  EXPECT_NE(refusal(5, config, true).find("12 positions on 5"), std::string::npos)
      << refusal(5, config, true);
}

}  // namespace
}  // namespace trireme::tensor_layers_test
