#include "trireme/models/gpt.h"

#include <algorithm>
#include <cmath>

#include "trireme/models/norm.h"
#include "trireme/models/transformer.h"
#include "trireme/tensor/functions.h"
#include "trireme/tensor/random.h"

// Legend: B sequences, T positions, C width, V vocabulary.
namespace trireme {
inline namespace v0 {
namespace models {
namespace {

constexpr double kStddev = 0.02;

class GptBlock : public Block {
 public:
  explicit GptBlock(double dropout) : dropout_(dropout) {}
  std::vector<NamedTensor> buffers() override { return {}; }
  void train(bool on) override { training_ = on; }

 protected:
  at::Tensor drop(at::Tensor x) const {
    return training_ && dropout_ > 0 ? tensor::dropout(x, dropout_) : x;
  }

 private:
  double dropout_;
  bool training_ = true;
};

class Embed final : public GptBlock {
 public:
  Embed(const GptConfig& config, const LayerContext& context, const LayerFactory& layers)
      : GptBlock(config.dropout),
        weight_(layers.table(context, "weight", config.vocab, config.width, kStddev)),
        position_(layers.table(context, "position", config.block, config.width, kStddev)) {}
  Value forward(std::span<const Value> inputs) override {
    return {drop(tensor::embedding(inputs[0][0], weight_, position_))};
  }
  std::vector<NamedTensor> parameters() override {
    return {{"weight", weight_, true}, {"position", position_, true}};
  }

 private:
  at::Tensor weight_, position_;
};

class Layer final : public GptBlock {
 public:
  Layer(const GptConfig& config, const LayerContext& context, const LayerFactory& layers)
      : GptBlock(config.dropout),
        heads_(config.heads),
        norm1_(config.width, config.bias, context.type),
        norm2_(config.width, config.bias, context.type) {
    const auto width = config.width;
    const double residual = kStddev / std::sqrt(2.0 * config.layers);
    const auto make = [&](const char* name, std::int64_t in, std::int64_t out, double stddev,
                          Cut cut) {
      return layers.linear(
          context,
          {.name = name, .in = in, .out = out, .bias = config.bias, .stddev = stddev, .cut = cut});
    };
    qkv_ = make("attention.qkv", width, 3 * width, kStddev, Cut::Columns);
    out_ = make("attention.out", width, width, residual, Cut::Rows);
    up_ = make("mlp.up", width, 4 * width, kStddev, Cut::Columns);
    down_ = make("mlp.down", 4 * width, width, residual, Cut::Rows);
  }
  Value forward(std::span<const Value> inputs) override {
    const at::Tensor& x_BTC = inputs[0][0];
    const at::Tensor attended =
        tensor::causal_attention(qkv_->forward(norm1_.forward(x_BTC)), heads_);
    const auto [middle_BTC, normed] = norm2_.add_forward(x_BTC, drop(out_->forward(attended)));
    const at::Tensor mlp = drop(down_->forward(up_->forward_gelu(normed)));
    return {tensor::residual_add(middle_BTC, mlp)};
  }
  std::vector<NamedTensor> parameters() override {
    std::vector<NamedTensor> all;
    norm1_.append_parameters("norm1", all);
    qkv_->append_parameters(all);
    out_->append_parameters(all);
    norm2_.append_parameters("norm2", all);
    up_->append_parameters(all);
    down_->append_parameters(all);
    return all;
  }

 private:
  std::int64_t heads_;
  Norm norm1_, norm2_;
  std::unique_ptr<Linear> qkv_, out_, up_, down_;
};

class Head final : public GptBlock {
 public:
  // Its table has the embedding's name, so that it starts with the embedding's values.
  Head(const GptConfig& config, LayerContext context, const LayerFactory& layers)
      : GptBlock(0), norm_(config.width, config.bias, context.type) {
    context.block = "embed";
    weight_ = layers.table(context, "weight", config.vocab, config.width, kStddev);
  }
  Value forward(std::span<const Value> inputs) override {
    return {tensor::linear(norm_.forward(inputs[0][0]), weight_, {})};
  }
  std::vector<NamedTensor> parameters() override {
    std::vector<NamedTensor> all;
    norm_.append_parameters("norm", all);
    all.push_back({"weight", weight_, true});
    return all;
  }

 private:
  Norm norm_;
  at::Tensor weight_;
};

}  // namespace

Blocks make_gpt(const GptConfig& config, std::shared_ptr<const LayerFactory> layers) {
  check_transformer(config, "a GPT");
  return transformer_blocks<Embed, Layer, Head>(config, layers);
}

std::int64_t num_parameters(const GptConfig& config) {
  const std::int64_t width = config.width, bias = config.bias ? 1 : 0;
  const std::int64_t norm = width * (1 + bias);
  const std::int64_t layer = 2 * norm + 12 * width * width + bias * 9 * width;
  return (config.vocab + config.block) * width + config.layers * layer + norm;
}

std::int64_t largest_neighbours(const GptConfig& config) {
  const std::int64_t width = config.width, bias = config.bias ? 1 : 0;
  const std::int64_t layer = 2 * width * (1 + bias) + 12 * width * width + bias * 9 * width;
  const std::int64_t embed = (config.vocab + config.block) * width;
  return layer + std::max(embed + width * (1 + bias), layer);
}

double training_flops(const GptConfig& config, std::int64_t tokens) {
  const double width = static_cast<double>(config.width);
  const double matrices =
      12.0 * config.layers * width * width + static_cast<double>(config.vocab) * width;
  // The causal half of T x T scores, twice (scores and values), 2 operations each, per layer.
  const double attention = 2.0 * config.layers * width * static_cast<double>(config.block);
  return 3.0 * static_cast<double>(tokens) * (2.0 * matrices + attention);
}

std::vector<BlockActivations> block_activations(const GptConfig& config, std::int64_t sequences) {
  const std::int64_t tokens = sequences * config.block;
  const std::int64_t stream = config.precision == "fp64" ? 8 : 4;
  const std::int64_t compute = config.precision == "fp64" ? 8 : config.precision == "fp32" ? 4 : 2;
  // Per layer and token: 2 streams; norms' outputs (2 C), qkv (3 C), attention (C), MLP before and
  // after GELU (8 C) and attention's probabilities (a row a head) in the compute type; statistics;
  // dropout's masks.
  const std::int64_t row =
      config.block <= tensor::kKeptProbabilities ? config.heads * config.block : 0;
  const std::int64_t masks = config.dropout > 0 ? 1 : 0;
  const std::int64_t layer =
      config.width * (2 * stream + (14 + 2 * masks) * compute) + row * compute + 4 * stream;
  const std::int64_t head =
      config.width * ((1 + masks) * stream + compute) + 2 * config.vocab * compute;
  std::vector<BlockActivations> blocks = {{}};  // the embedding's output is the first layer's
  for (int i = 0; i < config.layers; ++i)
    blocks.push_back({.kept = tokens * layer,
                      .probabilities = tokens * row * compute,
                      .inputs = tokens * config.width * stream});
  blocks.push_back({.kept = tokens * head, .inputs = tokens * config.width * stream});
  return blocks;
}

}  // namespace models
}  // namespace v0
}  // namespace trireme
