// The function tables behind kernel/reduce.h, one per instruction set. Internal to kernel/.
#pragma once

#include <cstddef>

namespace trireme::inline v0::kernel {

using CombineFn = void (*)(const void* left, const void* right, void* const* outs,
                           std::size_t num_outs, std::size_t count);
using DivideFn = void (*)(void* values, std::size_t count, double by);

inline constexpr int kNumCombines = 4;  // kernel::Combine
inline constexpr int kNumKinds = 7;     // F64 F32 BF16 F16 I64 I32 U8
struct ReduceTable {
  CombineFn combine[kNumCombines][kNumKinds];
  DivideFn divide[4];
  /// [Sum, Product][BF16, F16]. Bits 2, 1, 0 of the last index are set if left, right, outs are
  /// fp32, not 16-bit; function 0 is the one in `combine`.
  CombineFn mixed[2][2][8];
};
extern const ReduceTable kReduceSse2, kReduceAvx2, kReduceAvx512;

}  // namespace trireme::inline v0::kernel
