// The keys of the program's own GPT, and what its plan needs, by formula.
#include "trireme/base/error.h"
#include "trireme/models/gpt.h"
#include "trireme/train/model_registry.h"

namespace trireme {
inline namespace v0 {
namespace train {
namespace {

std::vector<config::Key> gpt_keys() {
  const auto whole = [](std::int64_t value) { return config::Value(value); };
  std::vector<config::Key> keys;
  keys.push_back({"model.layers", whole(4), "Transformer layers.", 1, 1e4, {}, true});
  keys.push_back(
      {"model.heads", whole(4), "Attention heads; divides the width.", 1, 1e4, {}, true});
  keys.push_back({"model.width", whole(128), "Channels of the residual stream.", 1, 1e6, {}, true});
  keys.push_back({"model.block", whole(64), "Sequence length, in tokens.", 1, 1e6, {}, true});
  keys.push_back({"model.dropout",
                  0.0,
                  "Share of the embeddings' and of each layer's additions that is dropped in "
                  "training.",
                  0,
                  0.9,
                  {},
                  true});
  keys.push_back({"model.bias", false, "Biases in linear layers and norms.", 0, 1, {}, true});
  return keys;
}

models::GptConfig gpt_config(const ModelValues& values) {
  const models::GptConfig config{.layers = static_cast<int>(values.integer("layers")),
                                 .heads = static_cast<int>(values.integer("heads")),
                                 .width = values.integer("width"),
                                 .block = values.block(),
                                 .vocab = values.vocabulary(),
                                 .bias = values.boolean("bias"),
                                 .dropout = values.number("dropout"),
                                 .precision = values.precision(),
                                 .seed = values.seed()};
  if (config.width % config.heads != 0) {
    throw ConfigError("model.heads does not divide model.width: " + std::to_string(config.width) +
                          " / " + std::to_string(config.heads) + " leaves " +
                          std::to_string(config.width % config.heads),
                      {.operation = "config", .advice = "Change one of them."});
  }
  return config;
}

}  // namespace

ModelKind gpt_kind() {
  return {.name = "gpt",
          .keys = gpt_keys(),
          .make = [](const ModelValues& values) { return models::make_gpt(gpt_config(values)); },
          .describe =
              [](const ModelValues& values) {
                return std::to_string(values.integer("layers")) + " layers, " +
                       std::to_string(values.integer("heads")) + " heads, " +
                       std::to_string(values.integer("width")) + " wide";
              },
          .size =
              [](const ModelValues& values, std::int64_t sequences) {
                const models::GptConfig config = gpt_config(values);
                return ModelSize{.parameters = models::num_parameters(config),
                                 .largest_neighbours = models::largest_neighbours(config),
                                 .activation_bytes = models::activation_bytes(config, sequences)};
              }};
}

}  // namespace train
}  // namespace v0
}  // namespace trireme
