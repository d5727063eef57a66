// The blocks' contract: names, reads, initial values, adapters; and that a GPT learns.
#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>

#include <algorithm>
#include <map>

#include "trireme/base/error.h"
#include "trireme/models/feed_forward.h"
#include "trireme/models/figures.h"
#include "trireme/models/models.h"
#include "trireme/models/module_block.h"
#include "trireme/tensor/determinism.h"
#include "trireme/tensor/functions/functions.h"
#include "trireme/tensor/random.h"

namespace trireme::models {
namespace {

std::int64_t bytes_kept(const GptConfig& config) {
  std::int64_t sum = 0;
  for (const BlockActivations& block : block_activations(config, 2)) sum += block.kept;
  return sum;
}

GptConfig tiny(const std::string& precision) {
  return {.layers = 2,
          .heads = 2,
          .width = 16,
          .block = 12,
          .vocab = 32,
          .bias = true,
          .precision = precision,
          .seed = 3};
}

// A one-process runtime: builds every block, ties aliases, runs the list.
struct Plain {
  std::vector<std::shared_ptr<Block>> blocks;
  std::vector<BlockSpec> specs;
  std::map<std::string, NamedTensor> parameters;
  explicit Plain(const Blocks& model) : specs(model.specs()) {
    for (const auto& spec : specs) {
      blocks.push_back(spec.make());
      for (auto& parameter : blocks.back()->parameters()) {
        parameters[spec.name + "." + parameter.name] = parameter;
      }
    }
    for (const auto& tie : model.ties()) {
      parameters.at(tie.alias).tensor.set_data(parameters.at(tie.owner).tensor.detach());
    }
  }
  at::Tensor run(const std::string& field, const at::Tensor& input) {
    std::map<std::string, Value> values = {{field, {input}}};
    for (std::size_t i = 0; i < blocks.size(); ++i) {
      std::vector<Value> inputs;
      for (const auto& name : specs[i].reads) inputs.push_back(values.at(name));
      values[specs[i].writes] = blocks[i]->forward(inputs);
    }
    return values.at(specs.back().writes)[0];
  }
};

TEST(Gpt, NamesAndCounts) {
  const GptConfig config = tiny("fp32");
  const Blocks model = make_gpt(config);
  ASSERT_EQ(model.specs().size(), 4u);
  EXPECT_EQ(model.specs()[1].name, "layer.0");
  EXPECT_EQ(model.specs()[3].reads, std::vector<std::string>{"layer.1"});
  EXPECT_EQ(model.ties()[0].owner, "embed.weight");
  Plain plain(model);
  std::int64_t count = 0;
  for (const auto& [name, parameter] : plain.parameters) {
    if (name != "head.weight") count += parameter.tensor.numel();
    EXPECT_EQ(parameter.decay, parameter.tensor.dim() == 2) << name;
    EXPECT_TRUE(parameter.tensor.is_leaf() && parameter.tensor.requires_grad()) << name;
  }
  EXPECT_EQ(count, num_parameters(config));
  EXPECT_EQ(plain.parameters.count("layer.1.attention.qkv.weight"), 1u);
}

TEST(Gpt, TheLargestNeighboursAreThoseOfItsBlocks) {
  for (const int layers : {1, 3}) {
    for (const std::int64_t vocab : {10, 300}) {
      for (const std::int64_t block : {1, 40}) {
        GptConfig config = tiny("fp32");
        config.layers = layers;
        config.vocab = vocab;
        config.block = block;
        std::int64_t largest = 0, before = 0;
        const Blocks model = make_gpt(config);
        for (const BlockSpec& spec : model.specs()) {
          std::int64_t own = 0;
          for (const NamedTensor& parameter : spec.make()->parameters())
            own += parameter.tensor.numel();
          largest = std::max(largest, before + own);
          before = own;
        }
        EXPECT_EQ(largest_neighbours(config), largest) << layers << " " << vocab << " " << block;
        EXPECT_EQ(largest_neighbouring_layers(config), layers > 1 && vocab == 10 ? 2 : 1);
      }
    }
  }
}

TEST(Gpt, ExpertsTakeTheMlpsPlace) {
  GptConfig config = tiny("fp32");
  config.experts = 3;
  Plain plain(make_gpt(config));
  std::int64_t count = 0;
  for (const auto& [name, parameter] : plain.parameters)
    if (name != "head.weight") count += parameter.tensor.numel();
  EXPECT_EQ(count, num_parameters(config));
  EXPECT_EQ(plain.parameters.count("layer.1.mlp.up.weight"), 0u);
  EXPECT_EQ(plain.parameters.at("layer.1.experts.2.down.bias").tensor.numel(), config.width);
  EXPECT_EQ(plain.parameters.at("layer.0.router.weight").tensor.size(0), 3);
  EXPECT_FALSE(at::equal(plain.parameters.at("layer.0.experts.0.up.weight").tensor,
                         plain.parameters.at("layer.0.experts.1.up.weight").tensor));
  GptConfig dense = config;
  dense.experts = 0;
  EXPECT_GT(training_flops(config, 100), 1.4 * training_flops(dense, 100)) << "two of three";
  EXPECT_GT(bytes_kept(config), bytes_kept(dense));
  GptConfig many = config;  // more experts than choices
  many.experts = 100;
  for (const Kernel& kernel : kernels(many, 1))
    EXPECT_GT(*std::min_element(kernel.sizes.begin(), kernel.sizes.end()), 0) << kernel.name;
  config.top_k = 4;
  EXPECT_THROW(Plain(make_gpt(config)), ConfigError);
  config.experts = -1;
  EXPECT_THROW(make_gpt(config), ConfigError);
}

// Half of the capacity that two choices of each token need is that of one choice.
TEST(Gpt, FiguresOfExpertsFollowTheirCapacity) {
  GptConfig half = tiny("bf16");
  half.experts = 4;
  GptConfig one = half, roomy = half;
  half.capacity_factor = 0.5;
  one.top_k = 1;
  roomy.capacity_factor = 2;
  const auto largest_rows = [](const GptConfig& config) {
    std::int64_t most = 0;
    for (const Kernel& kernel : kernels(config, 64))
      if (kernel.calls == config.layers * config.experts) most = kernel.sizes[0];
    return most;
  };
  EXPECT_EQ(training_flops(half, 100), training_flops(one, 100));
  EXPECT_EQ(bytes_kept(half), bytes_kept(one));
  EXPECT_EQ(largest_rows(half), largest_rows(one));
  EXPECT_GT(largest_rows(half), 0);
  half.capacity_factor = 1;  // takes every choice, as more would if they are spread evenly
  EXPECT_EQ(training_flops(half, 100), training_flops(roomy, 100));
  EXPECT_EQ(bytes_kept(half), bytes_kept(roomy));
  EXPECT_EQ(largest_rows(half), largest_rows(roomy));
  EXPECT_GT(bytes_kept(half), bytes_kept(one));
}

TEST(Gpt, AGatedMlpIsTheFormula) {
  for (const std::string activation : {"swiglu", "geglu"}) {
    GptConfig config = tiny("fp64");
    config.activation = activation;
    Plain plain(make_gpt(config));
    std::int64_t count = 0;
    for (const auto& [name, parameter] : plain.parameters)
      if (name != "head.weight") count += parameter.tensor.numel();
    EXPECT_EQ(count, num_parameters(config));
    const at::Tensor up = plain.parameters.at("layer.0.mlp.up.weight").tensor;
    EXPECT_EQ(up.sizes(), (std::vector<std::int64_t>{128, config.width})) << "64 channels, twice";

    const FeedForwardSpec spec{.name = "mlp",
                               .width = config.width,
                               .hidden = 64,
                               .activation = activation_of(activation),
                               .bias = true,
                               .stddev = 0.5,
                               .stddev_down = 0.5};
    const LayerContext context{.block = "layer.0", .type = at::kDouble};
    const FeedForward mlp(*local_layers(), context, spec);
    std::vector<NamedTensor> own;
    mlp.append_parameters(own);
    ASSERT_EQ(own.size(), 4u);
    at::Tensor x = at::empty({3, config.width}, at::kDouble);
    tensor::fill_normal(x, 1, "x", 0, 1);
    const at::Tensor rows = at::linear(x, own[0].tensor, own[1].tensor);
    const at::Tensor gate = rows.narrow(1, 0, 64), value = rows.narrow(1, 64, 64);
    const at::Tensor expected =
        at::linear((activation == "swiglu" ? at::silu(gate) : at::gelu(gate, "tanh")) * value,
                   own[2].tensor, own[3].tensor);
    EXPECT_TRUE(at::allclose(mlp.forward(x), expected, 1e-12, 1e-13)) << activation;
  }
  EXPECT_EQ(hidden_width(4096, 0, Activation::Swiglu), 10944);
  EXPECT_EQ(hidden_width(4096, 11008, Activation::Swiglu), 11008) << "LLaMA's";
  EXPECT_EQ(hidden_width(384, 0, Activation::Gelu), 1536);
  GptConfig config = tiny("fp32");
  config.activation = "relu";
  EXPECT_THROW(make_gpt(config), ConfigError);
  config.activation = "swiglu";
  config.hidden = -1;
  EXPECT_THROW(make_gpt(config), ConfigError);
}

TEST(Gpt, DropoutIsForTrainingAloneAndKeyedByItsStream) {
  const at::Tensor tokens = at::arange(24, at::kLong).view({2, 12});
  GptConfig config = tiny("fp32");
  const at::Tensor without = Plain(make_gpt(config)).run("tokens", tokens);
  config.dropout = 0.5;
  Plain plain(make_gpt(config));
  const auto run = [&](std::int64_t sample) {
    const tensor::StreamScope streams({.seed = 1, .step = 2, .sample = sample, .layer = 3});
    return plain.run("tokens", tokens);
  };
  EXPECT_FALSE(at::equal(run(0), without));
  EXPECT_TRUE(at::equal(run(0), run(0)));
  EXPECT_FALSE(at::equal(run(0), run(1)));
  for (const auto& block : plain.blocks) block->train(false);
  EXPECT_TRUE(at::equal(run(0), without));
  config.dropout = 1;
  EXPECT_THROW(make_gpt(config), ConfigError);
}

TEST(Dropout, KeepsTheMeanAndDrawsAnewInEachCall) {
  const tensor::StreamScope streams({.seed = 5});
  const at::Tensor x = at::ones({40'000}).set_requires_grad(true);
  const at::Tensor y = tensor::dropout(x, 0.25), again = tensor::dropout(x, 0.25);
  EXPECT_FALSE(at::equal(y, again));
  EXPECT_NEAR(y.mean().item<double>(), 1, 0.02);
  EXPECT_NEAR((y == 0).to(at::kDouble).mean().item<double>(), 0.25, 0.02);
  y.sum().backward();
  EXPECT_TRUE(at::equal(x.grad(), y)) << "the gradient is the mask";
  EXPECT_NEAR((again * y == 0).to(at::kDouble).mean().item<double>(), 1 - 0.75 * 0.75, 0.02);
}

TEST(Gpt, InitialValuesAreKeyedBySeedAndName) {
  const auto build = [](std::uint64_t seed) {
    GptConfig config = tiny("fp32");
    config.seed = seed;
    return Plain(make_gpt(config));
  };
  Plain a = build(1), b = build(1), c = build(2);
  const std::string name = "layer.1.mlp.down.weight";
  EXPECT_TRUE(at::equal(a.parameters[name].tensor, b.parameters[name].tensor));
  EXPECT_FALSE(at::equal(a.parameters[name].tensor, c.parameters[name].tensor));
  EXPECT_FALSE(
      at::equal(a.parameters[name].tensor, a.parameters["layer.0.mlp.down.weight"].tensor));
  // A block built alone has its values in the whole model, and the head starts as the embedding.
  const auto alone = make_gpt(tiny("fp32")).specs()[3].make()->parameters();
  EXPECT_TRUE(at::equal(alone.back().tensor,
                        Plain(make_gpt(tiny("fp32"))).parameters["embed.weight"].tensor));
  GptConfig wide = tiny("fp32");
  wide.width = 128;
  wide.layers = 8;
  Plain large(make_gpt(wide));
  EXPECT_NEAR(large.parameters["layer.0.mlp.up.weight"].tensor.std().item<double>(), 0.02, 2e-4);
  EXPECT_NEAR(large.parameters[name].tensor.std().item<double>(), 0.02 / 4, 5e-5);
}

TEST(Gpt, LearnsASequenceInEveryPrecision) {
  const at::Tensor tokens = at::arange(24).view({2, 12}).remainder(7);
  const at::Tensor targets = (tokens + 1).remainder(7);
  for (const auto& [precision, experts] : {std::pair{"fp64", 0},
                                           {"fp32", 0},
                                           {"bf16", 0},
                                           {"fp16", 0},
                                           {"fp32", 4},
                                           {"bf16", 4},
                                           {"fp16", 4}}) {
    tensor::set_up_process({.kernel_threads = 1});
    GptConfig config = tiny(precision);
    config.experts = experts;
    Plain plain(make_gpt(config));
    double first = 0, last = 0;
    for (int step = 0; step < 40; ++step) {
      const at::Tensor loss = tensor::cross_entropy_sum(plain.run("tokens", tokens), targets) / 24;
      last = loss.item<double>();
      if (step == 0) first = last;
      loss.backward();
      for (auto& [name, parameter] : plain.parameters) {
        ASSERT_EQ(parameter.tensor.grad().scalar_type(), parameter.tensor.scalar_type()) << name;
        at::Tensor weight = parameter.tensor.detach();
        weight.sub_(parameter.tensor.grad(), 0.5);
        parameter.tensor.mutable_grad().reset();
      }
    }
    EXPECT_NEAR(first, std::log(32), 0.2) << precision;
    EXPECT_LT(last, 0.6 * first) << precision;
  }
}

TEST(Gpt, RefusesNumbersThatDoNotFit) {
  GptConfig config = tiny("fp32");
  config.heads = 3;
  EXPECT_THROW(make_gpt(config), ConfigError);
  config = tiny("fp8");
  EXPECT_THROW(make_gpt(config), ConfigError);
}

TEST(Mlp, ReadsItsField) {
  Plain plain(make_mlp({.widths = {6, 5, 3}}));
  EXPECT_EQ(plain.run("features", at::ones({4, 6})).sizes(), (std::vector<std::int64_t>{4, 3}));
  EXPECT_THROW(make_mlp({.widths = {6}}), ConfigError);
  for (const std::int64_t width : {0, -1})
    for (const auto& widths : {std::vector<std::int64_t>{width, 3}, {6, width, 3}, {6, width}})
      EXPECT_THROW(make_mlp({.widths = widths}), ConfigError);
}

TEST(Adapters, ModulesHoldersLambdasAndSequential) {
  Blocks net;
  net.add("in", [] { return torch::nn::Linear(4, 8); });
  net.add("half", [] { return [](at::Tensor x) { return 0.5 * x; }; });
  net.add("out", [] { return std::make_shared<torch::nn::LinearImpl>(8, 2); });
  net.add("value", [] { return torch::nn::LinearImpl(2, 2); });
  Plain plain(net);
  EXPECT_EQ(plain.parameters.count("out.weight"), 1u);
  EXPECT_EQ(plain.parameters.count("half.weight"), 0u);
  const at::Tensor x = at::randn({3, 4});
  const auto& p = plain.parameters;
  const at::Tensor expected =
      at::linear(at::linear(0.5 * at::linear(x, p.at("in.weight").tensor, p.at("in.bias").tensor),
                            p.at("out.weight").tensor, p.at("out.bias").tensor),
                 p.at("value.weight").tensor, p.at("value.bias").tensor);
  EXPECT_TRUE(at::allclose(plain.run("tokens", x), expected));

  torch::nn::Sequential sequential(torch::nn::Linear(4, 8), torch::nn::Linear(8, 2));
  Blocks whole;
  whole.add("whole", [sequential] { return sequential; });
  EXPECT_TRUE(at::equal(Plain(whole).run("tokens", x), sequential->forward(x)));

  EXPECT_THROW(net.add("in", [] { return torch::nn::Linear(1, 1); }), ConfigError);
  std::vector<Value> two = {{x}, {x}};
  EXPECT_THROW(net.specs()[0].make()->forward(two), ConfigError);
}

TEST(Random, IsAFunctionOfItsKey) {
  at::Tensor all = at::empty({1000}), again = at::empty({1000}), other = at::empty({1000});
  tensor::fill_normal(all, 5, "a", 0, 1);
  tensor::fill_normal(again, 5, "a", 0, 1);
  tensor::fill_normal(other, 5, "b", 0, 1);
  EXPECT_TRUE(at::equal(all, again));
  EXPECT_LT(std::abs((all * other).mean().item<double>()), 0.1);
  at::Tensor mask = at::empty({10000});
  tensor::fill_dropout_mask(mask, {.seed = 1, .step = 2, .sample = 3, .layer = 4}, 0.25);
  EXPECT_NEAR(mask.mean().item<double>(), 1.0, 0.03);
  EXPECT_NEAR(mask.gt(0).to(at::kFloat).mean().item<double>(), 0.75, 0.02);
}

}  // namespace
}  // namespace trireme::models
