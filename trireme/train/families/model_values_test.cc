#include "trireme/train/families/own_parts.h"

#include <ATen/Context.h>
#include <ATen/Functions.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>

#include <array>

#include "trireme/base/error.h"
#include "trireme/models/figures.h"
#include "trireme/models/module_block.h"
#include "trireme/train/config/schema.h"
#include "trireme/train/families/data_family.h"
#include "trireme/train/families/model_family.h"
#include "trireme/train/families/model_size.h"
#include "trireme/train/families/module_precision.h"
#include "trireme/train/plan/kernel_speeds.h"

namespace trireme::model_values_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

v0::models::Blocks nothing(const ModelValues&) { return {}; }

std::string refusal(const std::function<void()>& act) {
  try {
    act();
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "nothing was thrown";
}

config::Config read(const std::vector<std::string>& assignments) {
  return train::read_config(
      "", [](const char*) { return nullptr; }, assignments);
}

TEST(TextFamily, RefusesKeysThatCannotBe) {
  const auto refused = [](const std::vector<ModelKey>& keys) {
    return refusal([&] { train::own_model("a", keys, nothing); });
  };
  EXPECT_THAT(refused({{"name", "x", ""}}), HasSubstr("model.name"));
  EXPECT_THAT(refused({{"x.y", 1, ""}}), HasSubstr("x.y"));
  EXPECT_THAT(refused({{"x", 1, ""}, {"x", 2, ""}}), HasSubstr("two keys"));
  EXPECT_THAT(refused({{"block", 0.5, ""}}), HasSubstr("is not an integer"));
}

TEST(TextFamily, ItsModelIsTheStandardOneWhereItIsChosen) {
  train::register_model(
      train::own_model("b", {{"depth", 2, "blocks"}, {"block", 8, "tokens"}}, nothing));
  EXPECT_EQ(read({"model.name=b"}).integer("model.block"), 8);
  EXPECT_THAT(refusal([] { read({"model.depth=2"}); }), HasSubstr("no key model.depth"));
  train::choose_default_model("b");
  config::name_program("mine");
  EXPECT_EQ(read({}).integer("model.depth"), 2);
  EXPECT_NE(read({"model.depth=3"}).identity(), read({}).identity());
  EXPECT_THAT(refusal([] { read({"model.heads=2"}); }),
              AllOf(HasSubstr("no key model.heads"), HasSubstr("`mine train --help-config`")));
  train::choose_default_model("gpt");
  config::name_program("trireme");
}

TEST(ModelValues, AreReadByNameAndType) {
  const train::ModelFamily family = train::own_model(
      "c", {{"width", 4, "channels"}, {"share", 0.5, ""}, {"on", true, ""}, {"how", "x", ""}},
      [](const ModelValues& values) {
        EXPECT_EQ(values.integer("width"), 4);
        EXPECT_EQ(values.number("width"), 4.0);
        EXPECT_EQ(values.number("share"), 0.5);
        EXPECT_TRUE(values.boolean("on"));
        EXPECT_EQ(values.text("how"), "x");
        EXPECT_EQ(values.block(), 64);
        EXPECT_EQ(values.seed(), 7u);
        EXPECT_EQ(values.precision(), "bf16");
        EXPECT_EQ(values.summary(), "width 4, share 0.5, on true, how x");
        EXPECT_THAT(refusal([&] { values.integer("hight"); }),
                    AllOf(HasSubstr("\"hight\""), HasSubstr("width, share, on, how, block")));
        EXPECT_THAT(refusal([&] { values.integer("share"); }), HasSubstr("as an integer"));
        EXPECT_THAT(refusal([&] { values.text("on"); }), HasSubstr("it is true or false"));
        return v0::models::Blocks();
      });
  train::register_model(family);
  family.make(read({"model.name=c", "train.seed=7", "train.precision=bf16"}));
}

// The sum over the blocks equals the formula for the whole model.
TEST(ModelFigures, TheWorkOfAllBlocksIsTheModels) {
  for (const char* model : {"gpt", "bert", "resnet18"}) {
    const train::Settings settings(read({std::string("model.name=") + model}));
    const train::ModelFigures figures = settings.model.figures(4, {});
    double forward = 0, scores = 0;
    for (const v0::models::BlockActivations& block : figures.activations) {
      forward += block.forward_work;
      scores += block.scores_work;
      EXPECT_LT(block.scores_work, 0.5 * block.forward_work + 1);
    }
    EXPECT_NEAR(3 * forward, figures.flops, 1e-9 * figures.flops) << model;
    EXPECT_EQ(scores > 0, std::string(model) != "resnet18") << model;
  }
}

// The products among the kernels are the model's operations.
TEST(ModelFigures, TheKernelsAreTheModels) {
  for (const std::vector<std::string>& assignments :
       {std::vector<std::string>{"model.name=gpt"},
        {"model.activation=swiglu", "model.bias=true"},
        {"model.experts=8", "model.top_k=2"},
        {"model.name=bert"},
        {"model.name=resnet18", "model.width=16"}}) {
    const train::ModelFigures figures = train::Settings(read(assignments)).model.figures(4, {});
    double operations = 0;
    for (const v0::models::Kernel& kernel : figures.kernels) {
      double each = 0;  // per loop: a multiplication and an addition, three times
      if (kernel.name.starts_with("linear") || kernel.name == "convolution") each = 6;
      if (kernel.name == "attention") each = 12;  // scores and values
      if (kernel.name == "causal attention") each = 6;
      operations += each * kernel.calls * train::work_of(kernel);
      const v0::models::Kernel sample = train::sample_of(kernel);
      EXPECT_LE(train::work_of(sample), train::work_of(kernel));
    }
    // A ResNet has a small head besides, which the formula counts.
    EXPECT_NEAR(operations, figures.flops, 1e-3 * figures.flops) << assignments.front();
  }
}

MicroBatch zeros(std::int64_t sequences, std::int64_t block) {
  const at::Tensor tokens = at::zeros({sequences, block}, at::kLong);
  return {.count = sequences * block, .fields = {{"tokens", tokens}, {"targets", tokens}}};
}

// Measured figures of the built-in GPT equal those of its formulas.
TEST(ModelSize, MeasuredIsWhatIsKnown) {
  for (const char* precision : {"fp32", "bf16", "fp16", "fp64"}) {
    const train::Settings settings(read({std::string("train.precision=") + precision}));
    const train::ModelFigures known = settings.model.figures(4, {});
    const train::ModelFigures measured =
        train::measure_size(settings.model.blocks, zeros(4, 64), settings.model.loss);
    EXPECT_EQ(measured.parameters, known.parameters);
    EXPECT_EQ(measured.largest_neighbours, known.largest_neighbours);
    const auto bytes = [](const train::ModelFigures& figures) {
      double sum = 0;
      for (const auto& block : figures.activations) sum += static_cast<double>(block.kept);
      return sum;
    };
    EXPECT_NEAR(bytes(measured), bytes(known), 0.15 * bytes(known)) << precision;
    ASSERT_EQ(measured.activations.size(), known.activations.size());
    for (std::size_t i = 1; i < known.activations.size(); ++i)
      EXPECT_EQ(measured.activations[i].inputs, known.activations[i].inputs) << "block " << i;
    for (const auto& block : measured.activations) EXPECT_GT(block.forward_work, 0);
  }
}

TEST(ModelSize, NamesWhatCannotBe) {
  const auto refused = [](const v0::models::Blocks& blocks, const Loss& loss) {
    return refusal([&] { train::measure_size(blocks, zeros(2, 8), loss); });
  };
  const auto same = [] { return [](at::Tensor x) { return x; }; };
  const Loss sum = [](const auto& output, const MicroBatch&) { return output.at(0).sum(); };
  v0::models::Blocks blocks;
  blocks.add("a", {"images"}, same);
  EXPECT_THAT(refused(blocks, sum),
              AllOf(HasSubstr("block \"a\" reads \"images\""), HasSubstr("targets, tokens")));
  blocks = {};
  blocks.add("a", {"tokens"}, [] { return torch::nn::Linear(3, 3); });
  EXPECT_THAT(refused(blocks, sum), HasSubstr("block \"a\" cannot take [2, 8]: "));
  blocks = {};
  blocks.add("a", [] { return torch::nn::Embedding(4, 2); });
  EXPECT_THAT(refused(blocks, [](const auto& output, const MicroBatch&) { return output.at(0); }),
              HasSubstr("the loss has the shape [2, 8, 2]"));
  EXPECT_THAT(refused(blocks, [](const auto&,
                                 const MicroBatch& micro) { return micro.field("targets").sum(); }),
              HasSubstr("does not depend on any parameter"));
  EXPECT_THAT(refused(blocks,
                      [](const auto& output, const MicroBatch& micro) {
                        return at::mm(output.at(0), micro.field("targets")).sum();
                      }),
              HasSubstr("the loss cannot take [2, 8, 2]: "));
  EXPECT_EQ(train::measure_size(blocks, zeros(2, 8), sum).parameters, 8);
}

// Whoever looks for batch norms and embeddings asks the block for its module.
TEST(ModulePrecision, ModulesStayVisible) {
  v0::models::Blocks blocks;
  blocks.add("norm", {"x"}, [] { return torch::nn::BatchNorm1d(4); });
  blocks.add("half", [] { return [](const at::Tensor& x) { return x / 2; }; });
  const at::Tensor x = at::ones({3, 4});
  for (const char* precision : {"bf16", "fp16", "fp64"}) {
    const v0::models::Blocks converted = train::in_precision(blocks, precision);
    const auto norm = converted.specs()[0].make(), half = converted.specs()[1].make();
    ASSERT_NE(v0::models::module_of(norm), nullptr) << precision;
    EXPECT_EQ(norm->buffers().size(), 3u);
    const v0::models::Value y = norm->forward(std::array<v0::models::Value, 1>{{{x}}});
    EXPECT_EQ(half->forward(std::array<v0::models::Value, 1>{y}).at(0).sizes(), x.sizes());
  }
}

TEST(OwnData, IsWhatItsReaderGives) {
  const train::DataFamily family = train::own_data(
      "pairs", {{"count", 4, "rows", 1}},
      [](const std::string& path, const DataValues& values) -> TensorSets {
        EXPECT_EQ(path, "a/b");
        const at::Tensor x = at::arange(2 * values.integer("count"), at::kFloat).view({-1, 2});
        return {{{"x", x}, {"targets", x.sum(1)}},
                {{"x", x.narrow(0, 0, 1)}, {"targets", x[0][0].view({1})}}};
      },
      {.sample = "pair", .items = "samples", .items_per_sample = 2});
  train::register_data(family);
  const config::Config config = read({"data.name=pairs", "data.count=3"});
  const std::shared_ptr<const DataSource> data = family.make(config);
  const input::Corpus corpus = data->load("a/b");
  EXPECT_EQ(data->describe(corpus), "a/b: 3 pairs to train on, 1 held out");
  EXPECT_EQ(corpus.hash.size(), 64u);
  const auto held_out = data->validation(corpus.validation, {});
  EXPECT_EQ(held_out->size(), 1);
  EXPECT_EQ(data->train(corpus.train, {})->size(), 0);  // endless
  const MicroBatch micro = train::examples_of(held_out)(3);
  EXPECT_EQ(micro.count, 6);
  EXPECT_EQ(micro.field("x").sizes(), (std::vector<std::int64_t>{3, 2}));
  EXPECT_THAT(read({"data.name=pairs"}).identity(), HasSubstr("data.count = 4"));
}

TEST(OwnData, RefusesKeysAndModelsThatCannotBe) {
  const auto none = [](const std::string&, const DataValues&) { return TensorSets(); };
  for (const char* name : {"name", "path", "x.y", ""})
    EXPECT_THAT(refusal([&] {
                  train::own_data("a", {{name, 1, ""}}, none);
                }),
                HasSubstr("the data a cannot have a key \"" + std::string(name) + "\""));
  EXPECT_THAT(refusal([&] { train::register_model(train::own_model("m", {}, nothing, {"dots"})); }),
              AllOf(HasSubstr("the data \"dots\""), HasSubstr("masked-text")));
  // A model over other data has no model.block, which text needs.
  train::register_data(train::own_data("empty", {}, none));
  train::register_model(train::own_model("over-empty", {}, nothing, {"empty"}));
  EXPECT_EQ(read({"model.name=over-empty"}).schema().find("model.block"), nullptr);
  EXPECT_THAT(refusal([] {
                train::Settings(read({"model.name=over-empty", "data.name=text"}));
              }),
              AllOf(HasSubstr("model.block"), HasSubstr("over-empty")));
}

TEST(ModelSize, DrawsNothingFromTheDefaultGenerator) {
  v0::models::Blocks drawing;
  drawing.add_block({.name = "draw", .make = []() -> std::shared_ptr<v0::models::Block> {
                       at::rand({5});
                       throw ConfigError("drawn");
                     }});
  at::manual_seed(5);
  const at::Tensor wanted = at::rand({3});
  at::manual_seed(5);
  EXPECT_THROW(train::measure_size(drawing, zeros(1, 8), token_loss()), ConfigError);
  EXPECT_TRUE(at::rand({3}).equal(wanted));
}

}  // namespace
}  // namespace trireme::model_values_test
