// A counter-based random integer, for data order: the same (seed, stream, index) gives the same
// number on any rank and in any call order. Pure.
#pragma once

#include <cstdint>

#include "trireme/kernel/philox.h"

namespace trireme::inline v0::input {

/// Uniform in [0, bound), bound >= 1; the bias is below bound / 2^64 (Lemire 2019, without the
/// rejection).
inline std::uint64_t random_below(std::uint64_t bound, std::uint64_t seed, std::uint64_t stream,
                                  std::uint64_t index) noexcept {
  const kernel::PhiloxBlock words = kernel::philox(seed, stream, index);
  const std::uint64_t value = (std::uint64_t{words[0]} << 32) | words[1];
  return static_cast<std::uint64_t>((static_cast<unsigned __int128>(value) * bound) >> 64);
}

}  // namespace trireme::inline v0::input
