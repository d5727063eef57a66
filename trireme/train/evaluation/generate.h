// Text from a trained model, one byte at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "trireme/strategy/strategy.h"

namespace trireme::inline v0::train {

struct GenerateOptions {
  std::int64_t bytes = 400;
  double temperature = 0.8;  // 0 = always the most likely byte
  std::int64_t top_k = 40;   // only the k most likely bytes; 0 = all
  std::uint64_t seed = 1;
  /// The model needs sequence lengths that are multiples of this (sequence and context parallel).
  /// The text is padded with zeros, which a causal model does not see.
  std::int64_t multiple = 1;
  /// Asked before each byte, if given: true ends the text there.
  std::function<bool()> ends = nullptr;
};

/// The text that the model writes after `prompt`. Samples from logits / temperature among the top k
/// (Fan, Lewis & Dauphin 2018). The same seed gives the same text, since the random generator is
/// local. `block`: the model's sequence length. `emit`, if given, gets each byte.
std::string generate(Strategy& strategy, std::int64_t block, std::string_view prompt,
                     const GenerateOptions& options,
                     const std::function<void(char)>& emit = nullptr);

}  // namespace trireme::inline v0::train
