// The vector kernels, compiled for this file's instruction set (CMakeLists.txt).
#include "trireme/kernel/simd.h"

#if defined(__x86_64__)
#include <immintrin.h>

namespace trireme::inline v0::kernel {
namespace avx2 {
namespace {
#include "trireme/kernel/simd_body.inc"
}  // namespace
const SimdTable kTable = {
#include "trireme/kernel/simd_table.inc"
};
}  // namespace avx2
}  // namespace trireme::inline v0::kernel
#endif
