#include "trireme/models/figures.h"

#include "trireme/models/feed_forward.h"
#include "trireme/models/norm.h"
#include "trireme/models/transformer.h"
#include "trireme/tensor/functions/functions.h"

// Legend: B sequences, T positions, C width, V vocabulary.
namespace trireme::inline v0::models {
namespace {

constexpr double kBertStddev = 0.02, kBertEpsilon = 1e-12;  // as in BERT's own code

class BertBlock : public TransformerBlock {
 public:
  BertBlock(const BertConfig& config, LayerContext context, const SharedLayers& layers)
      : TransformerBlock(layers, config.dropout), config_(config), context_(std::move(context)) {}

 protected:
  Norm norm() const { return {layers_, config_.width, true, context_.type, kBertEpsilon}; }
  std::unique_ptr<Linear> linear(const char* name, std::int64_t in, std::int64_t out, Cut cut,
                                 int parts = 1) const {
    return layers_->linear(context_, {.name = name,
                                      .in = in,
                                      .out = out,
                                      .bias = true,
                                      .stddev = kBertStddev,
                                      .cut = cut,
                                      .parts = parts});
  }
  std::unique_ptr<Vocabulary> vocabulary(const LayerContext& context, bool bias) const {
    return layers_->vocabulary(context, {.name = "weight",
                                         .rows = config_.vocab,
                                         .width = config_.width,
                                         .stddev = kBertStddev,
                                         .bias = bias});
  }
  const BertConfig config_;
  const LayerContext context_;
};

class BertEmbed final : public BertBlock {
 public:
  BertEmbed(const BertConfig& config, const LayerContext& context, const SharedLayers& layers)
      : BertBlock(config, context, layers),
        vocabulary_(vocabulary(context, false)),
        position_(position_table(config, context, kBertStddev)),
        norm_(norm()) {}
  Value forward(std::span<const Value> inputs) override {
    const at::Tensor x_BTC = vocabulary_->embed(inputs[0][0], position_);
    return {drop(norm_.forward_stream(x_BTC))};
  }
  std::vector<NamedTensor> parameters() override {
    std::vector<NamedTensor> all;
    vocabulary_->append_parameters(all);
    all.push_back({"position", position_, true});
    norm_.append_parameters("norm", all);
    return all;
  }

 private:
  std::unique_ptr<Vocabulary> vocabulary_;
  at::Tensor position_;
  Norm norm_;
};

class BertLayer final : public BertBlock {
 public:
  BertLayer(const BertConfig& config, const LayerContext& context, const SharedLayers& layers)
      : BertBlock(config, context, layers),
        norm1_(norm()),
        norm2_(norm()),
        mlp_(*layers, context,
             {.name = "mlp",
              .width = config.width,
              .hidden = feed_forward_width(config),
              .bias = true,
              .stddev = kBertStddev,
              .stddev_down = kBertStddev}) {
    const std::int64_t width = config.width;
    qkv_ = linear("attention.qkv", width, 3 * width, Cut::Columns, 3);
    out_ = linear("attention.out", width, width, Cut::Rows);
  }
  Value forward(std::span<const Value> inputs) override {
    const at::Tensor& x_BTC = inputs[0][0];
    const at::Tensor attended =
        layers_->attention(qkv_->forward(x_BTC), layers_->heads(config_.heads), false);
    const at::Tensor middle_BTC =
        norm1_.forward_stream(tensor::residual_add(x_BTC, drop(out_->forward(attended))));
    const at::Tensor mlp = drop(mlp_.forward(middle_BTC));
    return {norm2_.forward_stream(tensor::residual_add(middle_BTC, mlp))};
  }
  std::vector<NamedTensor> parameters() override {
    std::vector<NamedTensor> all;
    qkv_->append_parameters(all);
    out_->append_parameters(all);
    norm1_.append_parameters("norm1", all);
    mlp_.append_parameters(all);
    norm2_.append_parameters("norm2", all);
    return all;
  }

 private:
  Norm norm1_, norm2_;
  std::unique_ptr<Linear> qkv_, out_;
  FeedForward mlp_;
};

class BertHead final : public BertBlock {
 public:
  // The table has the embedding's name, so that it starts with the embedding's values.
  BertHead(const BertConfig& config, const LayerContext& context, const SharedLayers& layers)
      : BertBlock(config, context, layers), norm_(norm()) {
    transform_ = linear("transform", config.width, config.width, Cut::None);
    LayerContext embed = context;
    embed.block = "embed";
    vocabulary_ = vocabulary(embed, true);
  }
  Value forward(std::span<const Value> inputs) override {
    const at::Tensor hidden_BTC =
        norm_.forward(transform_->forward_gelu(inputs[0][0]).to(stream_type(context_.type)));
    return {vocabulary_->logits(hidden_BTC)};
  }
  std::vector<NamedTensor> parameters() override {
    std::vector<NamedTensor> all;
    transform_->append_parameters(all);
    norm_.append_parameters("norm", all);
    vocabulary_->append_parameters(all);
    return all;
  }

 private:
  Norm norm_;
  std::unique_ptr<Linear> transform_;
  std::unique_ptr<Vocabulary> vocabulary_;
};

std::int64_t layer_parameters(const BertConfig& config) {
  return 12 * config.width * config.width + 13 * config.width;
}
std::int64_t embed_parameters(const BertConfig& config) {
  return (config.vocab + config.block + 2) * config.width;
}
// Without the tied table.
std::int64_t head_parameters(const BertConfig& config) {
  return config.width * config.width + 3 * config.width + config.vocab;
}

}  // namespace

Blocks make_bert(const BertConfig& config, std::shared_ptr<const LayerFactory> layers) {
  check_transformer(config, "a BERT");
  return transformer_blocks<BertEmbed, BertLayer, BertHead>(config, layers);
}

std::int64_t feed_forward_width(const BertConfig& config) { return 4 * config.width; }

std::int64_t num_parameters(const BertConfig& config) {
  return embed_parameters(config) + config.layers * layer_parameters(config) +
         head_parameters(config);
}

std::int64_t largest_neighbours(const BertConfig& config) {
  return largest_pair(config.layers, embed_parameters(config), layer_parameters(config),
                      head_parameters(config) + config.vocab * config.width);
}

double training_flops(const BertConfig& config, std::int64_t tokens) {
  const auto width = static_cast<double>(config.width);
  const double matrices = 12.0 * config.layers * width * width + width * width +
                          static_cast<double>(config.vocab) * width;
  // Scores and values over all T x T positions, 2 operations each, per layer.
  const double attention = 4.0 * config.layers * width * static_cast<double>(config.block);
  return 3.0 * static_cast<double>(tokens) * (2.0 * matrices + attention);
}

std::vector<BlockActivations> block_activations(const BertConfig& config, std::int64_t sequences) {
  const at::ScalarType type = tensor::compute_type(config.precision);
  const auto compute = static_cast<std::int64_t>(c10::elementSize(type));
  const auto stream = static_cast<std::int64_t>(c10::elementSize(stream_type(type)));
  // Kept per layer and token: inputs and outputs of the two norms (4 C of the stream); qkv (3 C),
  // attention (C), the MLP before and after GELU (8 C), the rounded copies that linear layers keep
  // if the stream is wider (2 C), a row of probabilities per head; statistics; masks.
  const std::int64_t row =
      config.block <= tensor::kKeptProbabilities ? config.heads * config.block : 0;
  const std::int64_t masks = config.dropout > 0 ? 2 : 0;
  const std::int64_t rounded = compute < stream ? 2 : 0;
  const std::int64_t layer =
      config.width * (4 * stream + (12 + rounded + masks) * compute) + row * compute + 4 * stream;
  const std::int64_t head = config.width * (3 * stream + 3 * compute) + 2 * config.vocab * compute;
  const std::int64_t whole = config.width * (4 * stream + (rounded + masks) * compute) + 4 * stream;
  const std::int64_t inputs = config.width * stream;
  return transformer_activations(
      config.layers, sequences * config.block,
      {.kept = layer, .probabilities = row * compute, .inputs = inputs, .whole = whole},
      {.kept = head, .inputs = inputs, .whole = head - 2 * config.vocab * compute});
}

std::vector<Kernel> kernels(const BertConfig& config, std::int64_t sequences) {
  const std::int64_t tokens = sequences * config.block, width = config.width;
  const double layers = config.layers;
  return {{"norm", {tokens, width}, 2 * layers + 2},
          {"add", {tokens, width}, 2 * layers},
          {"linear bias", {tokens, width, 3 * width}, layers},
          {"attention", {sequences, config.block, config.heads, width / config.heads}, layers},
          {"linear bias", {tokens, width, width}, layers},
          {"linear bias gelu", {tokens, width, 4 * width}, layers},
          {"linear bias", {tokens, 4 * width, width}, layers},
          {"linear bias gelu", {tokens, width, width}},
          {"linear bias", {tokens, width, config.vocab}},
          {"loss", {tokens, config.vocab}}};
}

}  // namespace trireme::inline v0::models
