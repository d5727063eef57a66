// Models over text that are an embedding, transformer layers and a head: gpt and bert.
#include <algorithm>
#include <cmath>

#include "trireme/base/error.h"
#include "trireme/base/words.h"
#include "trireme/models/figures.h"
#include "trireme/train/families/model_family.h"

namespace trireme::inline v0::train {
namespace {

constexpr std::int64_t kBytes = 256;

// The keys that both models have.
std::vector<config::Key> transformer_keys() {
  return {{"model.layers", std::int64_t{4}, "Transformer layers.", 1, 1e4},
          {"model.heads", std::int64_t{4}, "Attention heads; divides the width.", 1, 1e4},
          {"model.width", std::int64_t{128}, "Channels of the residual stream.", 1, 1e6},
          {"model.block", std::int64_t{64}, "Sequence length, in tokens.", 1, 1e6},
          {"model.dropout", 0.0,
           "Share of the embeddings' and of each layer's additions that is dropped in training.", 0,
           0.9}};
}

template <class Config>
Config transformer_config(const config::Config& config) {
  return {.layers = static_cast<int>(config.integer("model.layers")),
          .heads = static_cast<int>(config.integer("model.heads")),
          .width = config.integer("model.width"),
          .block = config.integer("model.block"),
          .dropout = config.number("model.dropout"),
          .precision = config.text("train.precision"),
          .seed = static_cast<std::uint64_t>(config.integer("train.seed"))};
}

// The parts of the model that ranks can share.
template <class Config>
parallel::ModelShape transformer_shape(const Config& config) {
  const std::int64_t hidden = feed_forward_width(config);
  parallel::ModelShape shape{
      .shares = {{std::to_string(config.heads) + " attention heads", config.heads},
                 {"an MLP of " + std::to_string(hidden) + " channels", hidden}},
      .vocabulary = config.vocab,
      .positions = config.block};
  if constexpr (requires { config.experts; }) shape.experts = config.experts;
  return shape;
}

// Throws ConfigError if the parameters, or the activations of a micro-batch of `tokens` tokens, are
// more than 1e15.
template <class Config>
void check_countable(const Config& config, std::int64_t tokens) {
  constexpr double kMost = 1e15;
  const auto real = [](auto value) { return static_cast<double>(value); };
  const double width = real(config.width), hidden = real(feed_forward_width(config));
  double mlps = 1, chosen = 1;
  if constexpr (requires { config.experts; }) {
    mlps = real(std::max(config.experts, 1));
    chosen = real(std::max(config.top_k, 1)) + mlps;
  }
  const double parameters = real(config.layers) * (4 * width * width + mlps * 3 * width * hidden) +
                            real(config.vocab + config.block) * width;
  const double values =
      real(tokens) * (real(config.layers) * (12 * width + 3 * chosen * hidden +
                                             real(config.heads) * real(config.block)) +
                      2 * real(config.vocab));
  if (parameters <= kMost && values <= kMost) return;
  throw ConfigError("a model of about " + number_text(std::round(parameters)) +
                        " parameters, whose micro-batches have about " +
                        number_text(std::round(values)) + " values, cannot be planned",
                    {.operation = "plan",
                     .advice = "Lower model.width, model.layers, model.block or batch.micro: each "
                               "of both numbers goes to 1e15."});
}

// A layer's work is the work of the whole model less that of a model without layers, divided by the
// layers. Attention's work is what the sequence length adds to it; half of that is for the scores.
template <class Config>
ModelFigures transformer_figures(const Config& config, std::int64_t samples) {
  const std::int64_t tokens = samples * config.block;
  check_countable(config, tokens);
  const auto forward = [tokens](const Config& varied) {
    return training_flops(varied, tokens) / 3;  // backward takes twice as many
  };
  // Sums of the embedding and of the head are fp32 in 16-bit trainings, too; they are few.
  const std::int64_t element = config.precision == "fp64" ? 8 : config.precision == "fp32" ? 4 : 2;
  Config no_layers = config, no_attention = config;
  no_layers.layers = 0;
  no_attention.block = 0;
  ModelFigures figures{
      .parameters = num_parameters(config),
      .largest_neighbours = largest_neighbours(config),
      .activations = block_activations(config, samples),
      .flops = training_flops(config, tokens),
      .kernels = kernels(config, samples),
      // Two per layer in forward and in backward; one for the embedding, one for the head's input.
      .layer_sums = 4 * config.layers + 2,
      .layer_sum_bytes = tokens * config.width * element,
      .experts = 0,
      .shape = transformer_shape(config)};
  if constexpr (requires { config.experts; }) {
    figures.experts = config.experts;
    figures.expert_parameters = config.layers * expert_parameters(config);
    figures.expert_neighbours = largest_neighbouring_layers(config) * expert_parameters(config);
  }
  const double head = forward(no_layers);
  for (std::size_t i = 1; i + 1 < figures.activations.size(); ++i) {
    models::BlockActivations& layer = figures.activations[i];
    layer.forward_work = (forward(config) - head) / config.layers;
    if (layer.probabilities > 0)
      layer.scores_work = (forward(config) - forward(no_attention)) / config.layers / 2;
  }
  figures.activations.back().forward_work = head;
  return figures;
}

// `make`: make_gpt or make_bert.
template <class Config, class Make>
TrainingModel transformer_model(const std::string& kind, const Config& config, Make make) {
  Config small = config;
  small.heads = 1;
  small.width = small.block = small.vocab = 1;
  if constexpr (requires { small.hidden; }) small.hidden = 1;
  return {.description = kind + ", " + counted(config.layers, "layer") + ", " +
                         std::to_string(config.heads) + " heads, " + std::to_string(config.width) +
                         " wide, sequences of " + std::to_string(config.block) + " bytes",
          .blocks = make(config, nullptr),
          .figures = [config](std::int64_t samples,
                              const Examples&) { return transformer_figures(config, samples); },
          .names = make(small, nullptr)};
}

std::vector<config::Key> gpt_keys() {
  std::vector<config::Key> keys = transformer_keys();
  keys.insert(
      keys.end(),
      {{"model.vocab", kBytes,
        "Rows of the embedding. Text is read as bytes, the first 256 of them; more cost what a "
        "larger vocabulary costs.",
        256, 1e7},
       {"model.bias", false, "Biases in linear layers and norms."},
       {"model.activation",
        "gelu",
        "Activation of the MLP: gelu, or gated by swiglu or geglu (one matrix more).",
        0,
        0,
        {"gelu", "swiglu", "geglu"}},
       {"model.hidden", std::int64_t{0},
        "Channels inside the MLP, and inside each expert. 0: 4 x model.width; gated 8/3 x "
        "model.width, rounded up to a multiple of 64.",
        0, 1e7},
       {"model.experts", std::int64_t{0},
        "Experts of the mixture that takes the place of each layer's MLP, each as wide as it; 0: "
        "the MLP.",
        0, 1e4},
       {"model.top_k", std::int64_t{2}, "Experts of a mixture that a token goes to.", 1, 1e4},
       {"model.capacity_factor", 1.25,
        "An expert of a mixture takes at most so many times its even share of a sequence's "
        "choices; a choice beyond that adds nothing.",
        0.01, 1e4},
       {"model.balance", 0.01,
        "Weight of the loss that keeps a mixture's experts evenly chosen (Switch).", 0, 1e4}});
  return keys;
}

// Keys of mixtures, which change nothing without experts.
void check_mixture_keys(const config::Config& config) {
  if (config.integer("model.experts") != 0) return;
  for (const char* key : {"model.top_k", "model.capacity_factor", "model.balance"})
    if (config.value(key) != config.schema().find(key)->fallback)
      throw ConfigError(std::string(key) + " = " + config::to_toml(config.value(key)) +
                            " cannot be combined with model.experts = 0",
                        {.operation = "config", .advice = "Leave it out, or set model.experts."});
}

TrainingModel make_gpt_model(const config::Config& config) {
  check_mixture_keys(config);
  auto gpt = transformer_config<models::GptConfig>(config);
  gpt.vocab = config.integer("model.vocab");
  gpt.bias = config.boolean("model.bias");
  gpt.activation = config.text("model.activation");
  gpt.hidden = config.integer("model.hidden");
  gpt.experts = static_cast<int>(config.integer("model.experts"));
  gpt.top_k = static_cast<int>(config.integer("model.top_k"));
  gpt.capacity_factor = config.number("model.capacity_factor");
  gpt.balance = config.number("model.balance");
  TrainingModel model = transformer_model("gpt", gpt, models::make_gpt);
  if (gpt.vocab != kBytes) model.description += ", a vocabulary of " + std::to_string(gpt.vocab);
  if (gpt.activation != "gelu") model.description += ", " + gpt.activation;
  if (gpt.experts != 0)
    model.description +=
        ", " + std::to_string(gpt.experts) + " experts, " + std::to_string(gpt.top_k) + " a token";
  model.context = gpt.block;
  return model;
}

TrainingModel make_bert_model(const config::Config& config) {
  auto bert = transformer_config<models::BertConfig>(config);
  bert.vocab = kBytes + 1;  // and the mask
  TrainingModel model = transformer_model("BERT encoder", bert, models::make_bert);
  model.description += ", 15 % of them hidden";
  return model;
}

}  // namespace

ModelFamily gpt_family() { return {.name = "gpt", .keys = gpt_keys(), .make = make_gpt_model}; }

ModelFamily bert_family() {
  return {.name = "bert",
          .keys = transformer_keys(),
          .data = "masked-text",
          .loss = "classes",
          .make = make_bert_model};
}

}  // namespace trireme::inline v0::train
