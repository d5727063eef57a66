// ExactSum: the sum of fp64 numbers that are not negative, without rounding: an integer of 2,112
// bits, enough for the sum of 2^31 finite doubles. So the result depends neither on the order of
// additions nor on the process that makes them. A value.
#pragma once

#include <array>
#include <bit>
#include <cmath>
#include <cstdint>

namespace trireme::inline v0::ps {

class ExactSum {
 public:
  static constexpr std::size_t kLimbs = 66;
  using Limbs = std::array<std::uint64_t, kLimbs>;  // of 32 bits and carries; limb 0 counts 2^-1074

  /// `x` finite and >= 0.
  void add(double x) noexcept {
    const auto bits = std::bit_cast<std::uint64_t>(x);
    const std::uint64_t exponent = bits >> 52 & 0x7ff, fraction = bits & ((1ull << 52) - 1);
    const std::uint64_t mantissa = exponent == 0 ? fraction : fraction | 1ull << 52;
    const std::uint64_t shift = exponent == 0 ? 0 : exponent - 1;  // x = mantissa 2^(shift - 1074)
    const auto wide = static_cast<unsigned __int128>(mantissa) << shift % 32;
    std::uint64_t* limb = &limbs_[shift / 32];
    limb[0] += static_cast<std::uint32_t>(wide);
    limb[1] += static_cast<std::uint32_t>(wide >> 32);
    if (const auto rest = static_cast<std::uint32_t>(wide >> 64); rest != 0) limb[2] += rest;
  }
  void add(const ExactSum& other) noexcept { add(other.limbs_); }
  void add(const Limbs& limbs) noexcept {
    for (std::size_t i = 0; i < kLimbs; ++i) limbs_[i] += limbs[i];
  }
  const Limbs& limbs() const noexcept { return limbs_; }

  /// The sum as a double, within one unit in the last place. It depends on the sum alone.
  double value() const noexcept {
    Limbs whole = limbs_;
    std::uint64_t carry = 0;
    for (std::uint64_t& limb : whole) {
      limb += carry;
      carry = limb >> 32;
      limb = static_cast<std::uint32_t>(limb);
    }
    double sum = 0;
    for (std::size_t i = kLimbs; i-- > 0;)
      sum += std::ldexp(static_cast<double>(whole[i]), static_cast<int>(32 * i) - 1074);
    return sum;
  }

 private:
  Limbs limbs_ = {};
};

}  // namespace trireme::inline v0::ps
