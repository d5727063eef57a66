// A plain multi-layer perceptron as a list of blocks: the smallest model for tests and examples.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "trireme/models/block.h"

namespace trireme::inline v0 {
namespace models {

struct MlpConfig {
  std::vector<std::int64_t> widths = {784, 128, 10};  // input, hidden ..., output
  std::string precision = "fp32";
  std::uint64_t seed = 1;
  std::string input = "features";  // the batch field it reads, [b, widths[0]]
};

/// Blocks "layer.0" ... (linear with bias, GELU between them); the output is [b, widths.back()].
/// ConfigError for fewer than two widths.
Blocks make_mlp(const MlpConfig& config);

}  // namespace models
using models::MlpConfig;
}  // namespace trireme::inline v0
