// The table of vector kernels of one instruction set: what simd_body.inc is compiled into, once for
// each level. For the files of this folder; others call elementwise.h, transformer.h and the like.
#pragma once

#include <cstddef>

#include "trireme/kernel/elementwise.h"
#include "trireme/kernel/isa.h"

namespace trireme {
inline namespace v0 {
namespace kernel {

struct SimdTable {
  void (*to_f32)(const BFloat16*, float*, std::size_t);
  void (*to_bf16)(const float*, BFloat16*, std::size_t);
  void (*adamw)(const AdamWNumbers&, const float*, float*, float*, float*, BFloat16*, std::size_t);
  void (*sgd)(const SgdNumbers&, const float*, float*, float*, BFloat16*, std::size_t);
  double (*square_sum)(const float*, std::size_t);
};

/// The table of isa().
const SimdTable& simd() noexcept;
/// The table of one level; levels above the processor's may not be called.
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
}
#endif

}  // namespace kernel
}  // namespace v0
}  // namespace trireme
