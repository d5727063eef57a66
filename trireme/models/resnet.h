// The figures of ResNet (models.h): parameters, work and activations, counted without building it.
#pragma once

#include <cstdint>
#include <vector>

#include "trireme/models/models.h"

namespace trireme::inline v0::models {

struct BlockActivations;
struct Kernel;

std::int64_t num_parameters(const ResnetConfig& config);
/// Parameters of the pair of neighbouring blocks that has most.
std::int64_t largest_neighbours(const ResnetConfig& config);
/// Floating-point operations of one training step over `images` images.
double training_flops(const ResnetConfig& config, std::int64_t images);
/// Per block, for a micro-batch of `images`.
std::vector<BlockActivations> block_activations(const ResnetConfig& config, std::int64_t images);
/// The kernels of one micro-batch.
std::vector<Kernel> kernels(const ResnetConfig& config, std::int64_t images);

}  // namespace trireme::inline v0::models
