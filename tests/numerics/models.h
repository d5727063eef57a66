// Small models for the numerics tests: a language model with a tied head, and a perceptron. Each
// exists as a module (for DataParallel) and as blocks (for Strategy), with the same initial values.
// Sample i of their data is a function of i.
#pragma once

#include <ATen/Functions.h>
#include <torch/data/datasets/base.h>
#include <torch/data/example.h>
#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>

#include <string>
#include <vector>

#include "trireme/input/image_files.h"
#include "trireme/models/module_block.h"
#include "trireme/tensor/random.h"

namespace trireme::numerics {

constexpr std::int64_t kVocab = 24, kWidth = 16, kLength = 8, kImageSide = 8;

// Draws every parameter by (seed, its global name), whichever module holds it.
inline void initialize(torch::nn::Module& module, std::uint64_t seed, const std::string& prefix) {
  for (auto& item : module.named_parameters())
    tensor::fill_normal(item.value().detach(), seed, prefix + item.key(), 0, 0.3);
}

struct Embed : torch::nn::Module {
  Embed() { weight = register_parameter("weight", at::zeros({kVocab, kWidth})); }
  at::Tensor forward(const at::Tensor& tokens) { return at::embedding(weight, tokens); }
  at::Tensor weight;
};
struct Layer : torch::nn::Module {
  Layer() {
    norm = register_module("norm", torch::nn::LayerNorm(torch::nn::LayerNormOptions({kWidth})));
    up = register_module("up", torch::nn::Linear(kWidth, 2 * kWidth));
    down = register_module("down", torch::nn::Linear(2 * kWidth, kWidth));
  }
  at::Tensor forward(const at::Tensor& x) { return x + down(at::gelu(up(norm(x)))); }
  torch::nn::LayerNorm norm{nullptr};
  torch::nn::Linear up{nullptr}, down{nullptr};
};
struct Head : torch::nn::Module {
  Head() { weight = register_parameter("weight", at::zeros({kVocab, kWidth})); }
  at::Tensor forward(const at::Tensor& x) { return at::linear(x, weight); }
  at::Tensor weight;
};

// For DataParallel: one module; autograd adds the gradients of the embedding's two uses.
struct LanguageModel : torch::nn::Module {
  explicit LanguageModel(std::uint64_t seed) {
    embed = register_module("embed", std::make_shared<Embed>());
    layer = register_module("layer", std::make_shared<Layer>());
    initialize(*this, seed, "");
  }
  at::Tensor forward(const at::Tensor& tokens) {
    return at::linear(layer->forward(embed->forward(tokens)), embed->weight);
  }
  std::shared_ptr<Embed> embed;
  std::shared_ptr<Layer> layer;
};

template <class Module>
std::shared_ptr<Module> initialized(std::uint64_t seed, const std::string& prefix) {
  auto module = std::make_shared<Module>();
  initialize(*module, seed, prefix);
  return module;
}

// For Strategy: the same model as blocks.
inline models::Blocks language_model_blocks(std::uint64_t seed) {
  models::Blocks blocks;
  blocks.add("embed", [seed] { return initialized<Embed>(seed, "embed."); });
  blocks.add("layer", [seed] { return initialized<Layer>(seed, "layer."); });
  blocks.add("head", [seed] { return initialized<Head>(seed, "embed."); });
  blocks.tie("head.weight", "embed.weight");
  return blocks;
}

// Dropout from the block's own stream, or, if `foreign`, from LibTorch's default generator.
struct Dropout : torch::nn::Module {
  explicit Dropout(bool foreign) : foreign_(foreign) {}
  at::Tensor forward(const at::Tensor& x) {
    return foreign_ ? at::dropout(x, 0.2, true) : tensor::dropout(x, 0.2);
  }
  bool foreign_;
};
inline models::Blocks dropout_blocks(std::uint64_t seed, bool foreign) {
  models::Blocks blocks;
  blocks.add("embed", [seed] { return initialized<Embed>(seed, "embed."); });
  blocks.add("dropout", [foreign] { return std::make_shared<Dropout>(foreign); });
  blocks.add("layer", [seed] { return initialized<Layer>(seed, "layer."); });
  blocks.add("head", [seed] { return initialized<Head>(seed, "embed."); });
  blocks.tie("head.weight", "embed.weight");
  return blocks;
}

struct Perceptron : torch::nn::Module {
  explicit Perceptron(std::uint64_t seed) {
    first = register_module("first", torch::nn::Linear(kLength, 20));
    second = register_module("second", torch::nn::Linear(20, 3));
    initialize(*this, seed, "perceptron.");
  }
  at::Tensor forward(const at::Tensor& x) { return second(at::tanh(first(x))); }
  torch::nn::Linear first{nullptr}, second{nullptr};
};
inline models::Blocks perceptron_blocks(std::uint64_t seed) {
  models::Blocks blocks;
  blocks.add_block({.name = "perceptron",
                    .make = [seed] { return models::as_block(std::make_shared<Perceptron>(seed)); },
                    .reads = {"tokens"}});
  return blocks;
}

// A sample: kLength inputs (tokens or numbers) and the item that follows each.
struct Samples : torch::data::datasets::Dataset<Samples> {
  Samples(std::int64_t count, bool of_numbers) : count_(count), numbers_(of_numbers) {}
  torch::data::Example<> get(std::size_t index) override {
    at::Tensor noise = at::empty({kLength + 1}, at::kFloat);
    tensor::fill_uniform(noise, 5, "sample " + std::to_string(index), 0, 1);
    if (numbers_) return {noise.narrow(0, 0, kLength) * 2 - 1, noise.narrow(0, 0, 3)};
    const at::Tensor tokens = (noise * 6).to(at::kLong);
    return {tokens.narrow(0, 0, kLength).clone(), tokens.narrow(0, 1, kLength).clone()};
  }
  std::optional<std::size_t> size() const override { return static_cast<std::size_t>(count_); }
  std::int64_t count_;
  bool numbers_;
};

// The mean over samples of the mean over a sample's items.
inline at::Tensor mean_loss(const at::Tensor& output, const at::Tensor& target) {
  if (target.scalar_type() == at::kLong)
    return torch::nn::functional::cross_entropy(output.reshape({-1, kVocab}), target.reshape({-1}));
  return (output - target).pow(2).mean();
}

}  // namespace trireme::numerics
