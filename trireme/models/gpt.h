// The figures of GPT (models.h): parameters, work and activations, counted without building it.
#pragma once

#include <cstdint>
#include <vector>

#include "trireme/models/models.h"

namespace trireme::inline v0::models {

struct BlockActivations;
struct Kernel;

/// Parameters of that model; the tied head counts once.
std::int64_t num_parameters(const GptConfig& config);
/// Parameters of the pair of neighbouring blocks that has most; ZeRO-3 holds that many whole at a
/// time. The head's block counts its tied embedding.
std::int64_t largest_neighbours(const GptConfig& config);
/// Channels inside the MLP, and inside each expert.
std::int64_t feed_forward_width(const GptConfig& config);
/// Parameters of all experts of one layer; 0 without experts.
std::int64_t expert_parameters(const GptConfig& config);
/// How many of the two blocks of largest_neighbours() are layers.
int largest_neighbouring_layers(const GptConfig& config);
/// Floating-point operations of one training step (forward and backward) over `tokens` tokens.
double training_flops(const GptConfig& config, std::int64_t tokens);
/// Per block, for a micro-batch of `sequences`.
std::vector<BlockActivations> block_activations(const GptConfig& config, std::int64_t sequences);
/// The kernels of one micro-batch.
std::vector<Kernel> kernels(const GptConfig& config, std::int64_t sequences);

}  // namespace trireme::inline v0::models
