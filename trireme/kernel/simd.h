// The table of vector kernels of one instruction set; simd_body.inc is compiled into one table per
// level. Internal to kernel/: other folders call elementwise.h, optimizer.h and transformer.h.
#pragma once

#include <cstddef>

#include "trireme/kernel/elementwise.h"
#include "trireme/kernel/float16.h"
#include "trireme/kernel/gemm.h"
#include "trireme/kernel/isa.h"
#include "trireme/kernel/optimizer.h"
#include "trireme/kernel/transformer.h"

namespace trireme::inline v0::kernel {

/// The kernels of transformer.h for one activation type.
template <class T>
struct TransformerTable {
  void (*gelu)(const T*, T*, std::size_t);
  void (*gelu_grad)(const T*, const T*, T*, std::size_t);
  void (*gated)(Gate, const T*, T*, std::size_t, std::size_t);
  void (*gated_grad)(Gate, const T*, const T*, T*, std::size_t, std::size_t);
  void (*norm)(const NormForward<T>&);
  void (*norm_grad)(const NormBackward<T>&);
  void (*softmax)(const float*, std::size_t, T*, std::size_t, std::size_t, std::size_t, std::size_t,
                  double);
  void (*softmax_grad)(const T*, std::size_t, const float*, std::size_t, T*, std::size_t,
                       std::size_t, std::size_t, double);
  void (*shifted_exponents)(const float*, std::size_t, T*, std::size_t, const float*, float*,
                            std::size_t, std::size_t, std::size_t, double);
  void (*softmax_part_grad)(const T*, std::size_t, const float*, std::size_t, const float*, T*,
                            std::size_t, std::size_t, std::size_t, double);
  void (*row_exponents)(const T*, float*, float*, std::size_t, std::size_t);
  void (*scaled_softmax)(const T*, const float*, T*, std::size_t, std::size_t, float);
  void (*add)(const float*, const T*, float*, std::size_t);
};

/// The kernels of optimizer.h.
struct OptimizerTable {
  void (*adamw)(const AdamWNumbers&, const float*, float*, float*, float*, BFloat16*, std::size_t);
  void (*sgd)(const SgdNumbers&, const float*, float*, float*, BFloat16*, std::size_t);
  void (*lion)(const LionNumbers&, const float*, float*, float*, BFloat16*, std::size_t);
  void (*moments)(const MomentNumbers&, const float*, float*, float*, std::size_t);
  void (*lamb_direction)(const LambNumbers&, const float*, const float*, const float*, float*,
                         std::size_t);
  void (*factored_direction)(const FactoredNumbers&, const float*, const float*, float*,
                             std::size_t);
  void (*average_squares)(double, double, const float*, float*, std::size_t);
  void (*descend)(double, double, const float*, float*, BFloat16*, std::size_t);
  void (*add_squares)(const float*, double*, std::size_t);
};

struct SimdTable {
  void (*bf16_to_f32)(const BFloat16*, float*, std::size_t);
  void (*to_bf16)(const float*, BFloat16*, std::size_t);
  void (*f16_to_f32)(const Float16*, float*, std::size_t);
  void (*to_f16)(const float*, Float16*, std::size_t);
  double (*square_sum)(const float*, std::size_t);
  void (*gemm)(const Product<float>&, float* scratch);  // scratch: gemm.cc
  void (*row_maxima)(const float*, std::size_t, float*, std::size_t, std::size_t, std::size_t,
                     double);
  OptimizerTable optimizer;
  TransformerTable<float> f32;
  TransformerTable<BFloat16> bf16;
  TransformerTable<Float16> f16;
  template <class T>
  const TransformerTable<T>& transformer() const noexcept {
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
