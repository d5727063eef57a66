#include "trireme/base/words.h"
#include "trireme/models/models.h"
#include "trireme/train/config/identity_key.h"
#include "trireme/train/families/model_family.h"
#include "trireme/train/families/transformer_figures.h"
#include "trireme/train/families/transformer_keys.h"

namespace trireme::inline v0::train {
namespace {

constexpr std::int64_t kBytes = 256;

std::vector<config::Key> gpt_keys() {
  std::vector<config::Key> keys = transformer_keys();
  keys.push_back(identity_key(
      {"model.vocab", kBytes,
       "Rows of the embedding. Text is read as bytes, the first 256 of them; more cost "
       "what a larger vocabulary costs.",
       256, 1e7}));
  keys.push_back(identity_key({"model.bias", false, "Biases in linear layers and norms."}));
  keys.push_back(
      identity_key({"model.activation",
                    "gelu",
                    "Activation of the MLP: gelu, or gated by swiglu or geglu (one matrix more).",
                    0,
                    0,
                    {"gelu", "swiglu", "geglu"}}));
  keys.push_back(identity_key(
      {"model.hidden", std::int64_t{0},
       "Channels inside the MLP, and inside each expert. 0: 4 x model.width; gated 8/3 x "
       "model.width, rounded up to a multiple of 64.",
       0, 1e7}));
  keys.push_back(identity_key(
      {"model.experts", std::int64_t{0},
       "Experts of the mixture that takes the place of each layer's MLP, each as wide as it; "
       "0: the MLP.",
       0, 1e4}));
  keys.push_back(identity_key(
      {"model.top_k", std::int64_t{2}, "Experts of a mixture that a token goes to.", 1, 1e4}));
  keys.push_back(identity_key(
      {"model.capacity_factor", 1.25,
       "An expert of a mixture takes at most so many times its even share of a sequence's "
       "choices; a choice beyond that adds nothing.",
       0.01, 1e4}));
  keys.push_back(identity_key(
      {"model.balance", 0.01,
       "Weight of the loss that keeps a mixture's experts evenly chosen (Switch).", 0, 1e4}));
  return keys;
}

models::GptConfig gpt_of(const config::Config& config) {
  return {.layers = static_cast<int>(config.integer("model.layers")),
          .heads = static_cast<int>(config.integer("model.heads")),
          .width = config.integer("model.width"),
          .block = config.integer("model.block"),
          .vocab = config.integer("model.vocab"),
          .bias = config.boolean("model.bias"),
          .activation = config.text("model.activation"),
          .hidden = config.integer("model.hidden"),
          .experts = static_cast<int>(config.integer("model.experts")),
          .top_k = static_cast<int>(config.integer("model.top_k")),
          .capacity_factor = config.number("model.capacity_factor"),
          .balance = config.number("model.balance"),
          .dropout = config.number("model.dropout"),
          .precision = config.text("train.precision"),
          .seed = static_cast<std::uint64_t>(config.integer("train.seed"))};
}

TrainingModel make_gpt_model(const config::Config& config) {
  const models::GptConfig gpt = gpt_of(config);
  models::GptConfig small = gpt;
  small.heads = 1;
  small.width = small.block = small.vocab = small.hidden = 1;
  return {.description = "gpt, " + counted(gpt.layers, "layer") + ", " + std::to_string(gpt.heads) +
                         " heads, " + std::to_string(gpt.width) + " wide, sequences of " +
                         std::to_string(gpt.block) + " bytes" +
                         (gpt.vocab == kBytes ? std::string()
                                              : ", a vocabulary of " + std::to_string(gpt.vocab)) +
                         (gpt.activation == "gelu" ? std::string() : ", " + gpt.activation) +
                         (gpt.experts == 0 ? std::string()
                                           : ", " + std::to_string(gpt.experts) + " experts, " +
                                                 std::to_string(gpt.top_k) + " a token"),
          .blocks = models::make_gpt(gpt),
          .figures = [gpt](std::int64_t samples,
                           const Examples&) { return transformer_figures(gpt, samples); },
          .names = models::make_gpt(small),
          .context = gpt.block};
}

}  // namespace

ModelFamily gpt_family() { return {.name = "gpt", .keys = gpt_keys(), .make = make_gpt_model}; }

}  // namespace trireme::inline v0::train
