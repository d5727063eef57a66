#include "trireme/models/figures.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "trireme/base/error.h"
#include "trireme/base/words.h"
#include "trireme/models/experts.h"
#include "trireme/models/feed_forward.h"
#include "trireme/models/norm.h"
#include "trireme/models/routing.h"
#include "trireme/models/transformer.h"
#include "trireme/tensor/functions/functions.h"

// Legend: B sequences, T positions, C width, V vocabulary.
namespace trireme::inline v0::models {
namespace {

constexpr double kGptStddev = 0.02;

// Initial stddev of layers whose output is added to the residual stream.
double residual_stddev(const GptConfig& config) {
  return kGptStddev / std::sqrt(2.0 * config.layers);
}

FeedForwardSpec mlp_spec(const GptConfig& config) {
  const Activation activation = activation_of(config.activation);
  return {.name = "mlp",
          .width = config.width,
          .hidden = hidden_width(config.width, config.hidden, activation),
          .activation = activation,
          .bias = config.bias,
          .stddev = kGptStddev,
          .stddev_down = residual_stddev(config)};
}

ExpertsSpec experts_spec(const GptConfig& config) {
  return {.expert = mlp_spec(config),
          .experts = config.experts,
          .top_k = config.top_k,
          .capacity_factor = config.capacity_factor};
}

class Embed final : public TransformerBlock {
 public:
  Embed(const GptConfig& config, const LayerContext& context, const SharedLayers& layers)
      : TransformerBlock(layers, config.dropout),
        vocabulary_(layers->vocabulary(
            context,
            {.name = "weight", .rows = config.vocab, .width = config.width, .stddev = kGptStddev})),
        position_(position_table(config, context, kGptStddev)) {}
  Value forward(std::span<const Value> inputs) override {
    return {drop(vocabulary_->embed(inputs[0][0], position_))};
  }
  std::vector<NamedTensor> parameters() override {
    std::vector<NamedTensor> all;
    vocabulary_->append_parameters(all);
    all.push_back({"position", position_, true});
    return all;
  }

 private:
  std::unique_ptr<Vocabulary> vocabulary_;
  at::Tensor position_;
};

class Layer final : public TransformerBlock {
 public:
  Layer(const GptConfig& config, const LayerContext& context, const SharedLayers& layers)
      : TransformerBlock(layers, config.dropout),
        heads_(layers->heads(config.heads)),
        balance_(config.balance),
        norm1_(layers, config.width, config.bias, context.type),
        norm2_(layers, config.width, config.bias, context.type) {
    const auto width = config.width;
    const auto make = [&](const char* name, std::int64_t in, std::int64_t out, double stddev,
                          Cut cut, int parts = 1) {
      return layers->linear(context, {.name = name,
                                      .in = in,
                                      .out = out,
                                      .bias = config.bias,
                                      .stddev = stddev,
                                      .cut = cut,
                                      .parts = parts});
    };
    qkv_ = make("attention.qkv", width, 3 * width, kGptStddev, Cut::Columns, 3);
    out_ = make("attention.out", width, width, residual_stddev(config), Cut::Rows);
    if (config.experts > 0) {
      experts_ = layers->experts(context, experts_spec(config));
    } else {
      mlp_.emplace(*layers, context, mlp_spec(config));
    }
  }
  Value forward(std::span<const Value> inputs) override {
    const auto [x_BTC, normed_x] = norm1_.stream_and_norm(inputs[0][0]);
    const at::Tensor attended = layers_->attention(qkv_->forward(normed_x), heads_, true);
    const auto [middle_BTC, normed] = norm2_.add_forward(x_BTC, drop(out_->forward(attended)));
    return {tensor::residual_add(middle_BTC, drop(mlp(normed)))};
  }
  std::vector<NamedTensor> parameters() override {
    std::vector<NamedTensor> all;
    norm1_.append_parameters("norm1", all);
    qkv_->append_parameters(all);
    out_->append_parameters(all);
    norm2_.append_parameters("norm2", all);
    if (experts_) {
      experts_->append_parameters(all);
    } else {
      mlp_->append_parameters(all);
    }
    return all;
  }

 private:
  at::Tensor mlp(const at::Tensor& x_BTC) const {
    if (mlp_) return mlp_->forward(x_BTC);
    const Mixed mixed = experts_->forward(x_BTC);
    return with_loss(mixed.y, balance_ * mixed.balance);
  }

  std::int64_t heads_;
  double balance_;
  Norm norm1_, norm2_;
  std::unique_ptr<Linear> qkv_, out_;
  std::optional<FeedForward> mlp_;  // or experts_
  std::unique_ptr<Experts> experts_;
};

class Head final : public TransformerBlock {
 public:
  // The table has the embedding's name, so that it starts with the embedding's values.
  Head(const GptConfig& config, LayerContext context, const SharedLayers& layers)
      : TransformerBlock(layers, 0), norm_(layers, config.width, config.bias, context.type) {
    context.block = "embed";
    vocabulary_ = layers->vocabulary(
        context,
        {.name = "weight", .rows = config.vocab, .width = config.width, .stddev = kGptStddev});
  }
  Value forward(std::span<const Value> inputs) override {
    return {vocabulary_->logits(norm_.forward(inputs[0][0]))};
  }
  std::vector<NamedTensor> parameters() override {
    std::vector<NamedTensor> all;
    norm_.append_parameters("norm", all);
    vocabulary_->append_parameters(all);
    return all;
  }

 private:
  Norm norm_;
  std::unique_ptr<Vocabulary> vocabulary_;
};

}  // namespace

Blocks make_gpt(const GptConfig& config, std::shared_ptr<const LayerFactory> layers) {
  check_transformer(config, "a GPT");
  if (config.hidden < 0)
    throw ConfigError(
        "model.hidden = " + std::to_string(config.hidden) + " is below 0",
        {.operation = "config", .advice = "Use 0: it then follows from model.width."});
  activation_of(config.activation);
  if (config.experts < 0 || !(config.balance >= 0))
    throw ConfigError("model.experts = " + std::to_string(config.experts) +
                          " and model.balance = " + number_text(config.balance) +
                          " must both be at least 0",
                      {.operation = "config", .advice = "Use 0 experts for the usual MLP."});
  if (config.experts > 0) check_experts(experts_spec(config));
  return transformer_blocks<Embed, Layer, Head>(config, layers);
}

namespace {

// The choices of a token that experts take, on average over the tokens: as if they were spread
// evenly, without the rounding of an expert's capacity.
double taken_choices(const GptConfig& config) {
  return config.top_k * std::clamp(config.capacity_factor, 0.0, 1.0);
}

std::int64_t norm_parameters(const GptConfig& config) {
  return config.width * (config.bias ? 2 : 1);
}
std::int64_t layer_parameters(const GptConfig& config) {
  const std::int64_t width = config.width, bias = config.bias ? 1 : 0;
  const std::int64_t mlp = mlp_spec(config).parameters();
  return 2 * norm_parameters(config) + 4 * width * width + 4 * bias * width +
         (config.experts > 0 ? config.experts * (mlp + width) : mlp);
}

}  // namespace

std::int64_t num_parameters(const GptConfig& config) {
  return (config.vocab + config.block) * config.width + config.layers * layer_parameters(config) +
         norm_parameters(config);
}

std::int64_t largest_neighbours(const GptConfig& config) {
  return largest_pair(config.layers, (config.vocab + config.block) * config.width,
                      layer_parameters(config),
                      config.vocab * config.width + norm_parameters(config));
}

std::int64_t feed_forward_width(const GptConfig& config) { return mlp_spec(config).hidden; }

std::int64_t expert_parameters(const GptConfig& config) {
  return config.experts * mlp_spec(config).parameters();
}

int largest_neighbouring_layers(const GptConfig& config) {
  return config.layers > 1 && largest_neighbours(config) == 2 * layer_parameters(config) ? 2 : 1;
}

double training_flops(const GptConfig& config, std::int64_t tokens) {
  const double width = static_cast<double>(config.width);
  const FeedForwardSpec spec = mlp_spec(config);
  const double one = width * static_cast<double>(spec.middle() + spec.hidden);
  const double mlp =
      config.experts > 0 ? taken_choices(config) * one + config.experts * width : one;
  const double matrices =
      config.layers * (4.0 * width * width + mlp) + static_cast<double>(config.vocab) * width;
  // The causal half of T x T scores, twice (scores and values), 2 operations each, per layer.
  const double attention = 2.0 * config.layers * width * static_cast<double>(config.block);
  return 3.0 * static_cast<double>(tokens) * (2.0 * matrices + attention);
}

std::vector<BlockActivations> block_activations(const GptConfig& config, std::int64_t sequences) {
  const at::ScalarType type = tensor::compute_type(config.precision);
  const auto compute = static_cast<std::int64_t>(c10::elementSize(type));
  const auto stream = static_cast<std::int64_t>(c10::elementSize(stream_type(type)));
  // Kept per layer and token: 2 streams; in the compute type norms' outputs (2 C), qkv (3 C),
  // attention (C), the MLP before and after its activation, and a row of probabilities per head;
  // statistics; dropout's masks.
  const std::int64_t row =
      config.block <= tensor::kKeptProbabilities ? config.heads * config.block : 0;
  const std::int64_t masks = config.dropout > 0 ? 1 : 0;
  const std::int64_t mlp = mlp_spec(config).kept() * compute;
  std::int64_t layer =
      config.width * (2 * stream + (6 + 2 * masks) * compute) + mlp + row * compute + 4 * stream;
  // Streams, norms' outputs and masks.
  std::int64_t whole = config.width * (2 * stream + (2 + 2 * masks) * compute) + 4 * stream;
  if (config.experts > 0) {
    // Per choice: its row and the expert's output. Also the router's input if its type differs, and
    // its probabilities. The MLP's values are kept once per choice.
    const double choices = taken_choices(config);
    const auto of_choices = [choices](std::int64_t bytes) {
      return static_cast<std::int64_t>(choices * static_cast<double>(bytes));
    };
    const std::int64_t routed = of_choices(config.width * 2 * compute) +
                                (compute < stream ? config.width : 0) * stream +
                                config.experts * stream;
    layer += routed + of_choices(mlp) - mlp;
    whole += routed;
  }
  const std::int64_t head =
      config.width * ((1 + masks) * stream + compute) + 2 * config.vocab * compute;
  const std::int64_t inputs = config.width * stream;
  return transformer_activations(
      config.layers, sequences * config.block,
      {.kept = layer, .probabilities = row * compute, .inputs = inputs, .whole = whole},
      {.kept = head, .inputs = inputs, .whole = head - 2 * config.vocab * compute});
}

std::vector<Kernel> kernels(const GptConfig& config, std::int64_t sequences) {
  const std::int64_t tokens = sequences * config.block, width = config.width;
  const double layers = config.layers;
  const FeedForwardSpec mlp = mlp_spec(config);
  const std::string linear = config.bias ? "linear bias" : "linear";
  std::vector<Kernel> all = {
      {"norm", {tokens, width}, 2 * layers + 1},
      {"add", {tokens, width}, 2 * layers},
      {linear, {tokens, width, 3 * width}, layers},
      {"causal attention", {sequences, config.block, config.heads, width / config.heads}, layers},
      {linear, {tokens, width, width}, layers},
      {"linear", {tokens, width, config.vocab}},
      {"loss", {tokens, config.vocab}}};
  // An expert computes padding, too.
  const double mlps = layers * std::max(config.experts, 1);
  const double taken = static_cast<double>(tokens) * taken_choices(config);
  const std::int64_t rows = config.experts > 0
                                ? computed_rows(static_cast<std::int64_t>(taken / config.experts))
                                : tokens;
  if (config.experts > 0) all.push_back({"linear", {tokens, width, config.experts}, layers});
  if (mlp.is_gated()) {
    all.push_back({linear, {rows, width, mlp.middle()}, mlps});
    all.push_back({"gated", {rows, mlp.hidden}, mlps});
  } else {
    all.push_back({linear + " gelu", {rows, width, mlp.hidden}, mlps});
  }
  all.push_back({linear, {rows, mlp.hidden, width}, mlps});
  return all;
}

}  // namespace trireme::inline v0::models
