#include "trireme/kernel/isa.h"

#include <algorithm>
#include <cstdlib>

namespace trireme::inline v0::kernel {
namespace {

Isa best() noexcept {
#if defined(__x86_64__)
  __builtin_cpu_init();
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl")) {
    return Isa::Avx512;
  }
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
      __builtin_cpu_supports("f16c")) {
    return Isa::Avx2;
  }
#endif
  return Isa::Generic;
}

Isa wanted(Isa best) noexcept {
  const char* text = std::getenv("TRIREME_ISA");
  if (text == nullptr) return best;
  for (Isa level : {Isa::Generic, Isa::Avx2, Isa::Avx512}) {
    if (name_of(level) == text) return std::min(level, best);
  }
  return best;
}

}  // namespace

Isa isa() noexcept {
  static const Isa level = wanted(best());
  return level;
}

std::string_view name_of(Isa isa) noexcept {
  switch (isa) {
    case Isa::Avx512:
      return "avx512";
    case Isa::Avx2:
      return "avx2";
    default:
      return "generic";
  }
}

Vendor vendor() noexcept {
#if defined(__x86_64__)
  __builtin_cpu_init();
  if (__builtin_cpu_is("intel")) return Vendor::Intel;
  if (__builtin_cpu_is("amd")) return Vendor::Amd;
#endif
  return Vendor::Other;
}

bool has_bf16_products() noexcept {
#if defined(__x86_64__)
  __builtin_cpu_init();
  return __builtin_cpu_supports("avx512bf16") && isa() == Isa::Avx512;
#else
  return false;
#endif
}

}  // namespace trireme::inline v0::kernel
