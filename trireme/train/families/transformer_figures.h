// The figures of a transformer (an embedding, layers and a head) for a plan. Internal to train.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>

#include "trireme/base/error.h"
#include "trireme/base/words.h"
#include "trireme/train/families/model_family.h"

namespace trireme::inline v0::train {

/// The parts of the model that ranks can share.
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

/// Throws ConfigError if the parameters, or the activations of a micro-batch of `tokens` tokens,
/// are more than 1e15.
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

/// `Config` and its functions are those of models/figures.h. A layer's work is the
/// work of the whole model less that of a model without layers, divided by the layers. Attention's
/// work is what the sequence length adds to it; half of that is for the scores.
template <class Config>
ModelFigures transformer_figures(const Config& config, std::int64_t samples) {
  const std::int64_t tokens = samples * config.block;
  check_countable(config, tokens);
  const auto forward = [tokens](const Config& varied) {
    return training_flops(varied, tokens) / 3;  // backward takes twice as many
  };
  // Those of the embedding and of the head are fp32 in 16 bits, too; they are few.
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

}  // namespace trireme::inline v0::train
