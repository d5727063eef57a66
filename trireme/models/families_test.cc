// ResNet and BERT as lists of blocks: names, counts, initial values, and learning.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "trireme/base/error.h"
#include "trireme/models/figures.h"
#include "trireme/tensor/determinism.h"
#include "trireme/tensor/functions/functions.h"

namespace trireme::models::families_test {
namespace {

struct Plain {
  std::vector<std::shared_ptr<Block>> blocks;
  std::map<std::string, at::Tensor> parameters;  // the tied one once
  std::int64_t count = 0, neighbours = 0;
  explicit Plain(const Blocks& model) {
    std::int64_t before = 0;
    for (const auto& spec : model.specs()) {
      blocks.push_back(spec.make());
      std::int64_t own = 0;
      for (const NamedTensor& parameter : blocks.back()->parameters()) {
        parameters[spec.name + "." + parameter.name] = parameter.tensor;
        EXPECT_EQ(parameter.decay, parameter.tensor.dim() >= 2) << parameter.name;
        EXPECT_TRUE(parameter.tensor.is_leaf() && parameter.tensor.requires_grad());
        own += parameter.tensor.numel();
      }
      neighbours = std::max(neighbours, before + own);
      before = own;
    }
    for (const Tie& tie : model.ties()) {
      parameters.at(tie.alias).set_data(parameters.at(tie.owner).detach());
    }
    for (const auto& [name, tensor] : parameters)
      if (model.ties().empty() || name != model.ties()[0].alias) count += tensor.numel();
  }
  at::Tensor run(const at::Tensor& input) {
    Value value = {input};
    for (const auto& block : blocks) value = block->forward(std::vector<Value>{value});
    return value[0];
  }
  // Plain gradient descent on the mean loss; returns the first and the last loss.
  std::pair<double, double> descend(const at::Tensor& input, const at::Tensor& targets,
                                    double count_of_targets, double rate) {
    tensor::set_up_process({.kernel_threads = 1});
    double first = 0, last = 0;
    for (int step = 0; step < 25; ++step) {
      const at::Tensor loss = tensor::cross_entropy_sum(run(input), targets) / count_of_targets;
      last = loss.item<double>();
      if (step == 0) first = last;
      loss.backward();
      for (auto& [name, leaf] : parameters) {
        if (!leaf.grad().defined()) continue;
        EXPECT_EQ(leaf.grad().scalar_type(), leaf.scalar_type()) << name;
        at::Tensor weight = leaf.detach();
        weight.sub_(leaf.grad(), rate);
        leaf.mutable_grad().reset();
      }
    }
    return {first, last};
  }
};

// torchvision's resnet18 has 11,689,512 parameters, with a head of 1,000 classes and a 7 x 7 stem.
TEST(Resnet, HasTheParametersOfTorchvisions) {
  EXPECT_EQ(num_parameters(ResnetConfig{}), 11'689'512 - 3 * 64 * 40 - 513 * 990);
}

TEST(Resnet, NamesAndFigures) {
  const ResnetConfig config{.width = 4, .side = 16, .seed = 3};
  const Blocks model = make_resnet(config);
  ASSERT_EQ(model.specs().size(), 10u);
  EXPECT_EQ(model.specs()[0].reads, std::vector<std::string>{"images"});
  EXPECT_EQ(model.specs()[8].name, "layer4.1");
  Plain plain(model);
  EXPECT_EQ(plain.count, num_parameters(config));
  EXPECT_EQ(plain.neighbours, largest_neighbours(config));
  EXPECT_EQ(plain.parameters.count("stem.conv1.weight"), 1u);
  EXPECT_EQ(plain.parameters.count("layer2.0.downsample.0.weight"), 1u);
  EXPECT_EQ(plain.parameters.count("layer2.1.downsample.0.weight"), 0u);
  EXPECT_EQ(plain.parameters.at("layer3.0.conv1.weight").sizes(),
            (std::vector<std::int64_t>{16, 8, 3, 3}));
  EXPECT_EQ(plain.run(at::ones({2, 3, 16, 16})).sizes(), (std::vector<std::int64_t>{2, 10}));
  const auto buffers = plain.blocks[3]->buffers();
  EXPECT_TRUE(std::any_of(buffers.begin(), buffers.end(), [](const NamedTensor& buffer) {
    return buffer.name == "downsample.1.running_var";
  })) << "layer2.0's";
}

TEST(Resnet, InitialValuesAreKaimingsAndKeyedByName) {
  const ResnetConfig config{.width = 32};
  Plain one(make_resnet(config)), again(make_resnet(config));
  for (const auto& [name, value] : one.parameters)
    EXPECT_TRUE(at::equal(value, again.parameters.at(name))) << name;
  const at::Tensor& conv = one.parameters.at("layer4.1.conv2.weight");
  EXPECT_NEAR(conv.std().item<double>(), std::sqrt(2.0 / (256 * 9)), 1e-4);
  EXPECT_FALSE(at::equal(conv, one.parameters.at("layer4.1.conv1.weight")));
  EXPECT_LE(one.parameters.at("head.weight").abs().max().item<double>(), 1 / std::sqrt(256.0));
}

TEST(Resnet, LearnsInEveryPrecision) {
  at::manual_seed(1);
  const at::Tensor images = at::randn({8, 3, 8, 8}), targets = at::arange(8, at::kLong);
  for (const char* precision : {"fp64", "fp32", "bf16", "fp16"}) {
    Plain plain(make_resnet({.width = 4, .side = 8, .precision = precision}));
    const auto [first, last] = plain.descend(images, targets, 8, 0.02);
    EXPECT_LT(last, 0.5 * first) << precision;
  }
}

TEST(Resnet, RefusesNumbersThatDoNotFit) {
  EXPECT_THROW(make_resnet({.width = 0}), ConfigError);
  EXPECT_THROW(make_resnet({.side = 20}), ConfigError);
  EXPECT_THROW(make_resnet({.precision = "fp8"}), ConfigError);
}

TEST(Bert, NamesAndFigures) {
  const BertConfig config{.layers = 2, .heads = 2, .width = 16, .block = 12, .vocab = 40};
  const Blocks model = make_bert(config);
  ASSERT_EQ(model.specs().size(), 4u);
  Plain plain(model);
  EXPECT_EQ(plain.count, num_parameters(config));
  EXPECT_EQ(plain.neighbours, largest_neighbours(config));
  // BERT-base: 109,482,240 with segments (2 * 768) and the sentence head (768 * 769), and the
  // masked-token head's 769 * 768 + 2 * 768 + 30,522.
  EXPECT_EQ(num_parameters(BertConfig{.block = 512}),
            109'482'240 - 2 * 768 - 768 * 769 + 769 * 768 + 2 * 768 + 30'522);
}

// A token's output also depends on later tokens.
TEST(Bert, SeesBothSides) {
  Plain plain(make_bert({.layers = 1, .heads = 2, .width = 16, .block = 8, .vocab = 20}));
  const at::Tensor tokens = at::arange(8, at::kLong).view({1, 8});
  const at::Tensor before = plain.run(tokens);
  at::Tensor changed = tokens.clone();
  changed[0][7] = 15;
  EXPECT_FALSE(at::equal(plain.run(changed)[0][0], before[0][0]));
}

TEST(Bert, LearnsHiddenTokensInEveryPrecision) {
  const at::Tensor whole = at::arange(24, at::kLong).view({2, 12}).remainder(7);
  at::Tensor tokens = whole.clone(), targets = at::full({2, 12}, -1, at::kLong);
  for (std::int64_t t = 1; t < 12; t += 3) {
    tokens.select(1, t).fill_(19);
    targets.select(1, t).copy_(whole.select(1, t));
  }
  for (const char* precision : {"fp64", "fp32", "bf16", "fp16"}) {
    Plain plain(make_bert(
        {.layers = 2, .heads = 2, .width = 32, .block = 12, .vocab = 20, .precision = precision}));
    const auto [first, last] = plain.descend(tokens, targets, 8, 0.1);
    EXPECT_NEAR(first, std::log(20), 0.3) << precision;
    EXPECT_LT(last, 0.6 * first) << precision;
  }
}

}  // namespace
}  // namespace trireme::models::families_test
