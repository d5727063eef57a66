// Philox4x32-10 (Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2, 3"): random numbers
// as a pure function of (key, counter). Any rank can draw the values of any element without drawing
// those before it. Stateless, thread safe.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "trireme/base/mixed.h"

namespace trireme::inline v0::kernel {

using PhiloxBlock = std::array<std::uint32_t, 4>;

inline constexpr int kPhiloxRounds = 10;
inline constexpr std::int64_t kPhiloxFirst = 0xD2511F53, kPhiloxSecond = 0xCD9E8D57;
/// The key of a round.
struct PhiloxKey {
  std::uint32_t k0, k1;
  explicit constexpr PhiloxKey(std::uint64_t key) noexcept
      : k0(static_cast<std::uint32_t>(key)), k1(static_cast<std::uint32_t>(key >> 32)) {}
  constexpr void next() noexcept {
    k0 += 0x9E3779B9;
    k1 += 0xBB67AE85;
  }
};

/// Four random words for this (key, counter).
constexpr PhiloxBlock philox(std::uint64_t key, PhiloxBlock counter) noexcept {
  PhiloxKey round_key(key);
  for (int round = 0; round < kPhiloxRounds; ++round, round_key.next()) {
    const std::uint64_t a = std::uint64_t{kPhiloxFirst} * counter[0];
    const std::uint64_t b = std::uint64_t{kPhiloxSecond} * counter[2];
    counter = {static_cast<std::uint32_t>(b >> 32) ^ counter[1] ^ round_key.k0,
               static_cast<std::uint32_t>(b),
               static_cast<std::uint32_t>(a >> 32) ^ counter[3] ^ round_key.k1,
               static_cast<std::uint32_t>(a)};
  }
  return counter;
}

/// Four words for element block `index` of stream `stream` under `key`.
constexpr PhiloxBlock philox(std::uint64_t key, std::uint64_t stream,
                             std::uint64_t index) noexcept {
  return philox(
      key,
      PhiloxBlock{static_cast<std::uint32_t>(index), static_cast<std::uint32_t>(index >> 32),
                  static_cast<std::uint32_t>(stream), static_cast<std::uint32_t>(stream >> 32)});
}

/// A 64-bit stream number for a name: FNV-1a, then mixed().
constexpr std::uint64_t stream_of(std::string_view name) noexcept {
  std::uint64_t hash = 0xcbf29ce484222325;
  for (char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  return mixed(hash);
}

/// A float in (0, 1] with 24 random bits; unit() is in [0, 1).
constexpr float open_unit(std::uint32_t word) noexcept {
  return static_cast<float>((word >> 8) + 1) * 0x1p-24f;
}
constexpr float unit(std::uint32_t word) noexcept {
  return static_cast<float>(word >> 8) * 0x1p-24f;
}

}  // namespace trireme::inline v0::kernel
