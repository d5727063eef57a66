// Philox4x32-10: random numbers by counter (Salmon, Moraes, Dror, Shaw 2011, "Parallel random
// numbers: as easy as 1, 2, 3"). The same (key, counter) gives the same numbers on any rank, in any
// order, so data order is a function of (seed, epoch, sample) alone. Pure functions.
#pragma once

#include <array>
#include <cstdint>

namespace trireme {
inline namespace v0 {
namespace input {

inline std::array<std::uint32_t, 4> philox(std::array<std::uint32_t, 4> counter,
                                           std::array<std::uint32_t, 2> key) noexcept {
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t a = std::uint64_t{0xD2511F53} * counter[0];
    const std::uint64_t b = std::uint64_t{0xCD9E8D57} * counter[2];
    counter = {
        static_cast<std::uint32_t>(b >> 32) ^ counter[1] ^ key[0], static_cast<std::uint32_t>(b),
        static_cast<std::uint32_t>(a >> 32) ^ counter[3] ^ key[1], static_cast<std::uint32_t>(a)};
    key[0] += 0x9E3779B9;
    key[1] += 0xBB67AE85;
  }
  return counter;
}

/// A number in [0, bound) for (seed, stream, index); bound >= 1. The bias is below bound / 2^64.
inline std::uint64_t random_below(std::uint64_t bound, std::uint64_t seed, std::uint64_t stream,
                                  std::uint64_t index) noexcept {
  const auto low = [](std::uint64_t v) { return static_cast<std::uint32_t>(v); };
  const auto high = [](std::uint64_t v) { return static_cast<std::uint32_t>(v >> 32); };
  const auto bits =
      philox({low(index), high(index), low(stream), high(stream)}, {low(seed), high(seed)});
  const std::uint64_t value = (std::uint64_t{bits[0]} << 32) | bits[1];
  return static_cast<std::uint64_t>((static_cast<unsigned __int128>(value) * bound) >> 64);
}

}  // namespace input
}  // namespace v0
}  // namespace trireme
