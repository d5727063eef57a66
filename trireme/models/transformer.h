// Shared by transformers: their configuration's check and their list of blocks. Internal to
// models/.
#pragma once

#include <memory>
#include <string>
#include <type_traits>

#include "trireme/base/error.h"
#include "trireme/models/block.h"
#include "trireme/models/layer_factory.h"
#include "trireme/tensor/convert.h"

namespace trireme::inline v0::models {

/// Throws ConfigError if a number is below 1, dropout is not a probability below 1, or heads do not
/// divide width. `name` is the model's, as "a GPT".
template <class Config>
void check_transformer(const Config& config, const std::string& name) {
  const auto refuse = [](const std::string& what, const std::string& advice) {
    throw ConfigError(what, {.operation = "config", .advice = advice});
  };
  if (config.layers < 1 || config.heads < 1 || config.width < 1 || config.block < 1 ||
      config.vocab < 1)
    refuse(name + " needs layers, heads, width, block and vocabulary of at least 1",
           "Set model.layers, model.heads, model.width and model.block.");
  if (!(config.dropout >= 0 && config.dropout < 1))
    refuse("model.dropout is a probability below 1", "Use 0 to 0.5.");
  if (config.width % config.heads != 0)
    refuse("model.heads does not divide model.width: " + std::to_string(config.width) + " / " +
               std::to_string(config.heads) + " leaves " +
               std::to_string(config.width % config.heads),
           "Every head takes width / heads channels.");
}

/// Blocks "embed", "layer.0" ..., "head", whose table is tied to the embedding's. Each is made from
/// (config, context, layers). Null `layers`: current_layers() when the block is made.
template <class Embed, class Layer, class Head, class Config>
Blocks transformer_blocks(const Config& config, const std::shared_ptr<const LayerFactory>& layers) {
  const auto type = tensor::compute_type(config.precision);
  Blocks blocks;
  const auto add = [&]<class B>(const std::string& name, std::type_identity<B>) {
    blocks.add_block(
        {.name = name,
         .make = [config, layers, name, type]() -> std::shared_ptr<Block> {
           const LayerContext context{.block = name, .seed = config.seed, .type = type};
           return std::make_shared<B>(config, context, layers ? layers : current_layers());
         },
         .reads = {},
         .writes = {}});
  };
  add("embed", std::type_identity<Embed>());
  for (int i = 0; i < config.layers; ++i)
    add("layer." + std::to_string(i), std::type_identity<Layer>());
  add("head", std::type_identity<Head>());
  blocks.tie("head.weight", "embed.weight");
  return blocks;
}

}  // namespace trireme::inline v0::models
