// mixed(): spreads the bits of a number, for hashes and random numbers that do not depend on the
// machine. The finalizer of splitmix64 (Steele, Lea & Flood 2014, "Fast splittable pseudorandom
// number generators").
#pragma once

#include <cstdint>

namespace trireme::inline v0 {

/// A bijection: every bit of the result depends on every bit of `value`. mixed(0) is 0.
constexpr std::uint64_t mixed(std::uint64_t value) noexcept {
  value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9;
  value = (value ^ (value >> 27)) * 0x94d049bb133111eb;
  return value ^ (value >> 31);
}

/// Splitmix64 adds this to its state: its next random number is mixed(state += kMixedStep).
inline constexpr std::uint64_t kMixedStep = 0x9e3779b97f4a7c15;

}  // namespace trireme::inline v0
