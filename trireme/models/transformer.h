// Shared by transformers: the base of their blocks, their configuration's check, their list of
// blocks and their activations. Internal to models/.
#pragma once

#include <algorithm>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "trireme/base/refuse.h"
#include "trireme/base/words.h"
#include "trireme/models/figures.h"
#include "trireme/models/layer_factory.h"
#include "trireme/models/module_block.h"
#include "trireme/tensor/convert.h"

namespace trireme::inline v0::models {

using SharedLayers = std::shared_ptr<const LayerFactory>;

class TransformerBlock : public Block {
 public:
  TransformerBlock(SharedLayers layers, double dropout)
      : layers_(std::move(layers)), dropout_(dropout) {}
  std::vector<NamedTensor> buffers() override { return {}; }
  void train(bool on) override { training_ = on; }

 protected:
  at::Tensor drop(const at::Tensor& x) const {
    return training_ && dropout_ > 0 ? layers_->dropout(x, dropout_) : x;
  }

  const SharedLayers layers_;

 private:
  const double dropout_;
  bool training_ = true;
};

/// Throws ConfigError if a number is below 1, dropout is not a probability below 1, or heads do not
/// divide width. `name` is the model's, as "a GPT".
template <class Config>
void check_transformer(const Config& config, const std::string& name) {
  if (config.layers < 1 || config.heads < 1 || config.width < 1 || config.block < 1 ||
      config.vocab < 1)
    refuse("config", name + " needs layers, heads, width, block and vocabulary of at least 1",
           "Set model.layers, model.heads, model.width and model.block.");
  if (!(config.dropout >= 0 && config.dropout < 1))
    refuse("config",
           "model.dropout = " + number_text(config.dropout) + " is not a probability below 1",
           "Use 0 to 0.5.");
  if (config.width % config.heads != 0)
    refuse("config",
           "model.heads does not divide model.width: " + std::to_string(config.width) + " / " +
               std::to_string(config.heads) + " leaves " +
               std::to_string(config.width % config.heads),
           "Every head takes width / heads channels.");
}

/// The parameter "position" of the block "embed": [config.block, config.width]. Never cut.
template <class Config>
at::Tensor position_table(const Config& config, const LayerContext& context, double stddev) {
  return normal_leaf({config.block, config.width}, stddev, context.type, context.seed,
                     context.block + ".position");
}

/// Blocks "embed", "layer.0" ..., "head", whose table is tied to the embedding's. Each is made from
/// (config, context, layers). Null `layers`: current_layers() when the block is made.
template <class Embed, class Layer, class Head, class Config>
Blocks transformer_blocks(const Config& config, const SharedLayers& layers) {
  const auto type = tensor::compute_type(config.precision);
  Blocks blocks;
  const auto add = [&]<class B>(const std::string& name, std::type_identity<B>) {
    blocks.add(name, [config, layers, name, type] {
      const LayerContext context{.block = name, .seed = config.seed, .type = type};
      return std::make_shared<B>(config, context, layers ? layers : current_layers());
    });
  };
  add("embed", std::type_identity<Embed>());
  for (int i = 0; i < config.layers; ++i)
    add("layer." + std::to_string(i), std::type_identity<Layer>());
  add("head", std::type_identity<Head>());
  blocks.tie("head.weight", "embed.weight");
  return blocks;
}

/// The activations of a transformer's blocks. A layer keeps `layer` for a token, the head `head`.
inline std::vector<BlockActivations> transformer_activations(int layers, std::int64_t tokens,
                                                             BlockActivations layer,
                                                             BlockActivations head) {
  for (BlockActivations* block : {&layer, &head})
    for (std::int64_t* bytes : {&block->kept, &block->probabilities, &block->inputs, &block->whole})
      *bytes *= tokens;
  std::vector<BlockActivations> blocks = {{}};  // the embedding's output is the first layer's
  blocks.insert(blocks.end(), static_cast<std::size_t>(layers), layer);
  blocks.push_back(head);
  return blocks;
}

/// Parameters of the largest pair of neighbouring blocks.
inline std::int64_t largest_pair(int layers, std::int64_t embed, std::int64_t layer,
                                 std::int64_t head) {
  const std::int64_t ends = layer + std::max(embed, head);
  return layers > 1 ? std::max(ends, 2 * layer) : ends;
}

}  // namespace trireme::inline v0::models
