// ResNet for images of 32 x 32 pixels (He et al. 2015, arXiv:1512.03385; layers and initial values
// as torchvision's, with the stem that CIFAR-10 takes: a 3 x 3 convolution and no pooling).
//
// Blocks "stem", "layer1.0" ... "layer4.1", "head" (torchvision's "fc"); each residual block is
// one. The first reads the batch field "images" [b, 3, side, side]; the output is logits [b,
// classes]. Parameters within a block have torchvision's names ("conv1.weight", "bn1.weight",
// "downsample.0.weight"). Initial values are keyed by (seed, parameter name). Batch norm's buffers
// are fp32 (fp64 under fp64); its statistics are those of a micro-batch.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "trireme/models/block.h"

namespace trireme::inline v0 {
namespace models {

struct BlockActivations;
struct Kernel;

struct ResnetConfig {
  std::array<int, 4> layers = {2, 2, 2, 2};  // residual blocks of each stage: ResNet-18
  std::int64_t width = 64;                   // channels of the first stage; doubled in each
  std::int64_t side = 32, classes = 10;
  /// fp64 | fp32 | bf16 | fp16, of convolutions and activations. Norms' parameters and statistics
  /// are at least fp32.
  std::string precision = "fp32";
  std::uint64_t seed = 1;
};

/// Throws ConfigError if a number is below 1 or the side is not divisible by 8.
Blocks make_resnet(const ResnetConfig& config);

std::int64_t num_parameters(const ResnetConfig& config);
/// Parameters of the pair of neighbouring blocks that has most.
std::int64_t largest_neighbours(const ResnetConfig& config);
/// Floating-point operations of one training step over `images` images.
double training_flops(const ResnetConfig& config, std::int64_t images);
/// Per block, for a micro-batch of `images`.
std::vector<BlockActivations> block_activations(const ResnetConfig& config, std::int64_t images);
/// The kernels of one micro-batch.
std::vector<Kernel> kernels(const ResnetConfig& config, std::int64_t images);

}  // namespace models
using models::ResnetConfig;
}  // namespace trireme::inline v0
