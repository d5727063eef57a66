#include "trireme/base/words.h"
#include "trireme/models/models.h"
#include "trireme/train/families/model_family.h"
#include "trireme/train/families/transformer_figures.h"
#include "trireme/train/families/transformer_keys.h"

namespace trireme::inline v0::train {
namespace {

TrainingModel make_bert_model(const config::Config& config) {
  const models::BertConfig bert{.layers = static_cast<int>(config.integer("model.layers")),
                                .heads = static_cast<int>(config.integer("model.heads")),
                                .width = config.integer("model.width"),
                                .block = config.integer("model.block"),
                                .vocab = 257,  // 256 bytes and the mask
                                .dropout = config.number("model.dropout"),
                                .precision = config.text("train.precision"),
                                .seed = static_cast<std::uint64_t>(config.integer("train.seed"))};
  models::BertConfig small = bert;
  small.heads = 1;
  small.width = small.block = small.vocab = 1;
  return {.description = "BERT encoder, " + counted(bert.layers, "layer") + ", " +
                         std::to_string(bert.heads) + " heads, " + std::to_string(bert.width) +
                         " wide, sequences of " + std::to_string(bert.block) +
                         " bytes, 15 % of them hidden",
          .blocks = models::make_bert(bert),
          .figures = [bert](std::int64_t samples,
                            const Examples&) { return transformer_figures(bert, samples); },
          .names = models::make_bert(small)};
}

}  // namespace

ModelFamily bert_family() {
  return {.name = "bert",
          .keys = transformer_keys(),
          .data = "masked-text",
          .loss = "classes",
          .make = make_bert_model};
}

}  // namespace trireme::inline v0::train
