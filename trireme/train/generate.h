// Text from a trained model, one byte at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "trireme/parallel/strategy.h"

namespace trireme {
inline namespace v0 {
namespace train {

struct GenerateOptions {
  std::int64_t bytes = 400;
  double temperature = 0.8;  // 0 = always the likeliest byte
  std::int64_t top_k = 40;   // only the k likeliest; 0 = all
  std::uint64_t seed = 1;
  /// The model reads sequences of multiples of this length (sequence parallel): zeros follow the
  /// text, which a causal model does not see.
  std::int64_t multiple = 1;
};

/// What the model writes after `prompt` (without it). Samples from logits / temperature among the
/// top k (Fan, Lewis & Dauphin 2018), by a generator of its own: the same seed, the same text.
/// `block` is the model's sequence length; `emit`, where given, sees each byte as it comes.
std::string generate(Strategy& strategy, std::int64_t block, std::string_view prompt,
                     const GenerateOptions& options,
                     const std::function<void(char)>& emit = nullptr);

}  // namespace train
}  // namespace v0
}  // namespace trireme
