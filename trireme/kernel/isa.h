// Which instruction set the vector kernels of this process use. Part of the run's identity
// (NUMERICS.md): bits are equal across ranks only at one level.
#pragma once

#include <cstdint>
#include <string_view>

namespace trireme {
inline namespace v0 {
namespace kernel {

enum class Isa : std::uint8_t { Generic, Avx2, Avx512 };

/// The best level of this processor, or the one named by TRIREME_ISA (generic, avx2, avx512) where
/// it is lower. Decided at the first call; thread safe.
Isa isa() noexcept;
/// "generic", "avx2", "avx512".
std::string_view name_of(Isa isa) noexcept;

enum class Vendor : std::uint8_t { Other, Intel, Amd };
Vendor vendor() noexcept;
/// AVX-512 BF16 (and so perhaps AMX): products of bf16 pairs summed in fp32.
bool has_bf16_products() noexcept;

}  // namespace kernel
}  // namespace v0
}  // namespace trireme
