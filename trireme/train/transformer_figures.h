// What a plan says of a transformer: a list of an embedding, layers and a head. Internal to train.
#pragma once

#include <cstddef>
#include <cstdint>

#include "trireme/train/model_family.h"

namespace trireme {
inline namespace v0 {
namespace train {

/// `config` as models/gpt.h and models/bert.h have it, with their functions. A layer's work is what
/// it adds to the whole model's; attention's, what the length adds to that. Half of it are scores.
template <class Config>
ModelFigures transformer_figures(const Config& config, std::int64_t samples) {
  const std::int64_t tokens = samples * config.block;
  const auto forward = [tokens](const Config& varied) {
    return training_flops(varied, tokens) / 3;  // backward takes twice as many
  };
  Config no_layers = config, no_attention = config;
  no_layers.layers = 0;
  no_attention.block = 0;
  ModelFigures figures{
      .parameters = num_parameters(config),
      .largest_neighbours = largest_neighbours(config),
      .activations = block_activations(config, samples),
      .flops = training_flops(config, tokens),
      // Two a layer, forward and backward; the embedding's, and the head's input's.
      .layer_sums = 4 * config.layers + 2,
      .layer_sum_bytes = tokens * config.width * (config.precision == "fp64" ? 8 : 4),
      .experts = 0};
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

}  // namespace train
}  // namespace v0
}  // namespace trireme
