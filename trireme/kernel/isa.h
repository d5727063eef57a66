// The instruction set that the vector kernels of this process use. It is part of the run's identity
// (docs/numerics.md): results are bit-equal across ranks only if all use the same one.
#pragma once

#include <cstdint>
#include <string_view>

namespace trireme::inline v0::kernel {

enum class Isa : std::uint8_t { Generic, Avx2, Avx512 };

/// The best level of this processor, or the level named by TRIREME_ISA (generic, avx2, avx512) if
/// that is lower. Decided at the first call; thread safe.
Isa isa() noexcept;
/// "generic", "avx2", "avx512".
std::string_view name_of(Isa isa) noexcept;

enum class Vendor : std::uint8_t { Other, Intel, Amd };
Vendor vendor() noexcept;
/// True if isa() is Avx512 and the processor sums products of bf16 pairs in fp32 (AVX-512 BF16).
bool has_bf16_products() noexcept;

}  // namespace trireme::inline v0::kernel
