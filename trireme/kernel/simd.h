// The table of vector kernels of one instruction set; simd_body.inc is compiled into one table per
// level. Internal to kernel/: others call elementwise.h, optimizers/apply.h and transformer.h.
#pragma once

#include <cstddef>

#include "trireme/kernel/elementwise.h"
#include "trireme/kernel/float16.h"
#include "trireme/kernel/gemm.h"
#include "trireme/kernel/isa.h"
#include "trireme/kernel/optimizers/optimizers.h"
#include "trireme/kernel/transformer.h"

namespace trireme::inline v0::kernel {

template <class Rule>
using RuleFunction = void (*)(const Rule&, const float* const* in, float* const* out, BFloat16*,
                              std::size_t);
template <class Rule>
struct RuleSlot {
  RuleFunction<Rule> run;
};
/// One function for each rule of the list. A rule belongs to one optimizer.
template <class List>
struct RuleTable;
template <class... Rule>
struct RuleTable<RuleList<Rule...>> : RuleSlot<Rule>... {
  template <class One>
  RuleFunction<One> of() const noexcept {
    return static_cast<const RuleSlot<One>&>(*this).run;
  }
};

struct SimdTable {
  void (*bf16_to_f32)(const BFloat16*, float*, std::size_t);
  void (*to_bf16)(const float*, BFloat16*, std::size_t);
  void (*f16_to_f32)(const Float16*, float*, std::size_t);
  void (*to_f16)(const float*, Float16*, std::size_t);
  double (*square_sum)(const float*, std::size_t);
  void (*gemm)(const Product<float>&, float* scratch);  // scratch: gemm.cc
  void (*transpose)(const float*, std::size_t, std::size_t, float*);
  void (*add_squares)(const float*, double*, std::size_t);
  RuleTable<AllRules> rules;
  TransformerKernels<float> f32;
  TransformerKernels<BFloat16> bf16;
  TransformerKernels<Float16> f16;
  template <class T>
  const TransformerKernels<T>& transformer() const noexcept {
    if constexpr (std::is_same_v<T, float>) {
      return f32;
    } else if constexpr (std::is_same_v<T, Float16>) {
      return f16;
    } else {
      return bf16;
    }
  }
};

/// The table of isa().
const SimdTable& simd() noexcept;
/// The table of one level; kernels of a level that the processor lacks may not be called.
const SimdTable& simd(Isa isa) noexcept;

namespace generic {
extern const SimdTable kTable;
}
#if defined(__x86_64__)
namespace avx2 {
extern const SimdTable kTable;
}
namespace avx512 {
extern const SimdTable kTable;
void gemm_bf16(const Product<BFloat16>&, float* scratch);  // where has_bf16_products()
}  // namespace avx512
#endif

}  // namespace trireme::inline v0::kernel
