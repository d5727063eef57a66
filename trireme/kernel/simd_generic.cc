// The vector kernels, compiled for this file's instruction set (CMakeLists.txt).
#include "trireme/kernel/simd.h"

namespace trireme::inline v0::kernel {
namespace generic {
namespace {
#include "trireme/kernel/simd_body.inc"
}  // namespace
const SimdTable kTable = {
#include "trireme/kernel/simd_table.inc"
};
}  // namespace generic
}  // namespace trireme::inline v0::kernel
