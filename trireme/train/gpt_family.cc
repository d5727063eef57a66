#include "trireme/base/error.h"
#include "trireme/models/gpt.h"
#include "trireme/train/model_family.h"

namespace trireme {
inline namespace v0 {
namespace train {
namespace {

config::Value whole(std::int64_t value) { return value; }

std::vector<config::Key> keys() {
  std::vector<config::Key> keys = {
      {"model.layers", whole(4), "Transformer layers.", 1, 1e4, {}, true},
      {"model.heads", whole(4), "Attention heads; divides the width.", 1, 1e4, {}, true},
      {"model.width", whole(128), "Channels of the residual stream.", 1, 1e6, {}, true},
      {"model.block", whole(64), "Sequence length, in tokens.", 1, 1e6, {}, true},
      {"model.dropout",
       0.0,
       "Share of the embeddings' and of each layer's additions that is dropped in training.",
       0,
       0.9,
       {},
       true},
      {"model.bias", false, "Biases in linear layers and norms.", 0, 1, {}, true}};
  for (config::Key& key : text_keys()) keys.push_back(std::move(key));
  return keys;
}

models::GptConfig gpt_of(const config::Config& config) {
  models::GptConfig gpt{.layers = static_cast<int>(config.integer("model.layers")),
                        .heads = static_cast<int>(config.integer("model.heads")),
                        .width = config.integer("model.width"),
                        .block = config.integer("model.block"),
                        .vocab = 256,
                        .bias = config.boolean("model.bias"),
                        .dropout = config.number("model.dropout"),
                        .precision = config.text("train.precision"),
                        .seed = static_cast<std::uint64_t>(config.integer("train.seed"))};
  if (gpt.width % gpt.heads != 0) {
    throw ConfigError("model.heads does not divide model.width: " + std::to_string(gpt.width) +
                          " / " + std::to_string(gpt.heads) + " leaves " +
                          std::to_string(gpt.width % gpt.heads),
                      {.operation = "config", .advice = "Change one of them."});
  }
  return gpt;
}

TrainingModel make(const config::Config& config) {
  const models::GptConfig gpt = gpt_of(config);
  return {.description = "gpt, " + std::to_string(gpt.layers) + " layers, " +
                         std::to_string(gpt.heads) + " heads, " + std::to_string(gpt.width) +
                         " wide, sequences of " + std::to_string(gpt.block) + " bytes",
          .blocks = models::make_gpt(gpt),
          .loss = token_loss(),
          .data = text_source(gpt.block, gpt.seed),
          .figures =
              [gpt](std::int64_t samples) {
                return ModelFigures{.parameters = models::num_parameters(gpt),
                                    .largest_neighbours = models::largest_neighbours(gpt),
                                    .activation_bytes = models::activation_bytes(gpt, samples),
                                    .flops = models::training_flops(gpt, samples * gpt.block)};
              },
          .context = gpt.block};
}

}  // namespace

ModelFamily gpt_family() { return {.name = "gpt", .keys = keys(), .make = make}; }

}  // namespace train
}  // namespace v0
}  // namespace trireme
