// The kernels of kernel/cuda/fold.h: trireme_fold_<operation>_<type>(FoldArguments), and of update.h:
// trireme_update_<type>(UpdateArguments). They take any grid. nvcc compiles this file into a fat binary
// (CMakeLists.txt of kernel), which kernel_image.cc embeds and the CUDA driver loads; nothing links
// against it.
#include "trireme/kernel/cuda/fold.h"
#include "trireme/kernel/cuda/update.h"

namespace {

using namespace trireme::kernel::cuda;

template <FoldOp kOp, class T>
__device__ __forceinline__ void fold_all(const FoldArguments& arguments) {
  const std::uint64_t stride = static_cast<std::uint64_t>(gridDim.x) * blockDim.x;
  for (std::uint64_t i = static_cast<std::uint64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
       i < arguments.count; i += stride) {
    fold_element<kOp, T>(arguments, i);
  }
}

}  // namespace

#define TRIREME_FOLD_KERNEL(op, Op, type, T)                            \
  extern "C" __global__ void __launch_bounds__(256)                     \
      trireme_fold_##op##_##type(const __grid_constant__ FoldArguments arguments) { \
    fold_all<Op, T>(arguments);                                         \
  }
#define TRIREME_FOLD_KERNELS(op, Op)                  \
  TRIREME_FOLD_KERNEL(op, Op, f64, double)            \
  TRIREME_FOLD_KERNEL(op, Op, f32, float)             \
  TRIREME_FOLD_KERNEL(op, Op, bf16, BFloat16)         \
  TRIREME_FOLD_KERNEL(op, Op, f16, Float16)           \
  TRIREME_FOLD_KERNEL(op, Op, i64, std::uint64_t)     \
  TRIREME_FOLD_KERNEL(op, Op, i32, std::uint32_t)     \
  TRIREME_FOLD_KERNEL(op, Op, u8, std::uint8_t)
TRIREME_FOLD_KERNELS(sum, FoldSum)
TRIREME_FOLD_KERNELS(min, FoldMin)
TRIREME_FOLD_KERNELS(max, FoldMax)
TRIREME_FOLD_KERNELS(product, FoldProduct)

#define TRIREME_UPDATE_KERNEL(type, T)                                               \
  extern "C" __global__ void __launch_bounds__(256)                                  \
      trireme_update_##type(const __grid_constant__ UpdateArguments arguments) {     \
    update_share<T>(trireme::kernel::AllRules(), arguments, blockIdx.x, gridDim.x,   \
                    threadIdx.x, blockDim.x);                                        \
  }
TRIREME_UPDATE_KERNEL(f32, float)
TRIREME_UPDATE_KERNEL(f64, double)
