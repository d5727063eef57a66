// The figures of BERT (models.h): parameters, work and activations, counted without building it.
#pragma once

#include <cstdint>
#include <vector>

#include "trireme/models/models.h"

namespace trireme::inline v0::models {

struct BlockActivations;
struct Kernel;

/// Parameters of that model; the tied output counts once.
std::int64_t num_parameters(const BertConfig& config);
/// Parameters of the pair of neighbouring blocks that has most. The head counts its tied embedding.
std::int64_t largest_neighbours(const BertConfig& config);
/// Channels inside the MLP.
std::int64_t feed_forward_width(const BertConfig& config);
/// Floating-point operations of one training step over `tokens` tokens.
double training_flops(const BertConfig& config, std::int64_t tokens);
/// Per block, for a micro-batch of `sequences`.
std::vector<BlockActivations> block_activations(const BertConfig& config, std::int64_t sequences);
/// The kernels of one micro-batch.
std::vector<Kernel> kernels(const BertConfig& config, std::int64_t sequences);

}  // namespace trireme::inline v0::models
