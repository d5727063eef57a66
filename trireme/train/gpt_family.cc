#include "trireme/models/gpt.h"
#include "trireme/train/model_family.h"
#include "trireme/train/transformer_figures.h"
#include "trireme/train/transformer_keys.h"

namespace trireme {
inline namespace v0 {
namespace train {
namespace {

constexpr std::int64_t kBytes = 256;

std::vector<config::Key> keys() {
  std::vector<config::Key> keys = transformer_keys();
  keys.push_back({"model.vocab",
                  kBytes,
                  "Rows of the embedding. Text is read as bytes, the first 256 of them; more cost "
                  "what a larger vocabulary costs.",
                  256,
                  1e7,
                  {},
                  true});
  keys.push_back({"model.bias", false, "Biases in linear layers and norms.", 0, 1, {}, true});
  return keys;
}

models::GptConfig gpt_of(const config::Config& config) {
  return {.layers = static_cast<int>(config.integer("model.layers")),
          .heads = static_cast<int>(config.integer("model.heads")),
          .width = config.integer("model.width"),
          .block = config.integer("model.block"),
          .vocab = config.integer("model.vocab"),
          .bias = config.boolean("model.bias"),
          .dropout = config.number("model.dropout"),
          .precision = config.text("train.precision"),
          .seed = static_cast<std::uint64_t>(config.integer("train.seed"))};
}

TrainingModel make(const config::Config& config) {
  const models::GptConfig gpt = gpt_of(config);
  return {.description = "gpt, " + std::to_string(gpt.layers) + " layers, " +
                         std::to_string(gpt.heads) + " heads, " + std::to_string(gpt.width) +
                         " wide, sequences of " + std::to_string(gpt.block) + " bytes" +
                         (gpt.vocab == kBytes ? std::string()
                                              : ", a vocabulary of " + std::to_string(gpt.vocab)),
          .blocks = models::make_gpt(gpt),
          .loss = token_loss(),
          .data = text_source(gpt.block, gpt.seed),
          .figures = [gpt](std::int64_t samples) { return transformer_figures(gpt, samples); },
          .context = gpt.block};
}

}  // namespace

ModelFamily gpt_family() { return {.name = "gpt", .keys = keys(), .make = make}; }

}  // namespace train
}  // namespace v0
}  // namespace trireme
