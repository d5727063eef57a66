// The kernels of kernel/cuda/: trireme_fold_<operation>_<type>(FoldArguments) of fold.h,
// trireme_update_<type>(UpdateArguments) of update.h, and those of norm.h, cross_entropy.h,
// dropout.h and flat.h. They take any grid of blocks of 256 threads. nvcc compiles this file into a
// fat binary (CMakeLists.txt of kernel), which kernel_image.cc embeds and the CUDA driver loads.
#include "trireme/kernel/cuda/cross_entropy.h"
#include "trireme/kernel/cuda/dropout.h"
#include "trireme/kernel/cuda/flat.h"
#include "trireme/kernel/cuda/fold.h"
#include "trireme/kernel/cuda/norm.h"
#include "trireme/kernel/cuda/update.h"

namespace {

using namespace trireme::kernel::cuda;
using trireme::BFloat16, trireme::Float16;
using trireme::kernel::NormBackward, trireme::kernel::NormForward;

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

// trireme_<what>_<type>(Arguments<T>): share() does the work of one warp, or thread, of the grid.
#define TRIREME_SHARED_KERNEL(what, Arguments, share, sharers, type, T)                           \
  extern "C" __global__ void __launch_bounds__(kWarp* kWarpsOfBlock)                              \
      trireme_##what##_##type(const __grid_constant__ Arguments<T> arguments) {                   \
    share(arguments, (blockIdx.x * std::uint64_t{blockDim.x} + threadIdx.x) / sharers,            \
          gridDim.x * std::uint64_t{blockDim.x} / sharers);                                       \
  }
#define TRIREME_IN_SHORT_TYPES(what, Arguments, share, sharers)             \
  TRIREME_SHARED_KERNEL(what, Arguments, share, sharers, bf16, BFloat16)    \
  TRIREME_SHARED_KERNEL(what, Arguments, share, sharers, f16, Float16)
#define TRIREME_IN_LONG_TYPES(what, Arguments, share, sharers)              \
  TRIREME_SHARED_KERNEL(what, Arguments, share, sharers, f64, double)       \
  TRIREME_SHARED_KERNEL(what, Arguments, share, sharers, f32, float)
#define TRIREME_ROW_KERNELS(what, Arguments, share)                         \
  TRIREME_SHARED_KERNEL(what, Arguments, share, kWarp, f32, float)          \
  TRIREME_IN_SHORT_TYPES(what, Arguments, share, kWarp)
TRIREME_ROW_KERNELS(norm_forward, NormForward, norm_share)
TRIREME_ROW_KERNELS(norm_backward, NormBackward, norm_backward_share)
TRIREME_ROW_KERNELS(norm_columns, NormBackward, norm_columns_share)
TRIREME_ROW_KERNELS(loss_forward, LossRows, loss_share)
TRIREME_ROW_KERNELS(loss_backward, LossRows, loss_backward_share)
TRIREME_IN_LONG_TYPES(mask, MaskArguments, mask_share, 1)
TRIREME_IN_SHORT_TYPES(mask, MaskArguments, mask_share, 1)
TRIREME_IN_LONG_TYPES(leaf, LeafArguments, leaf_share, 1)
TRIREME_IN_SHORT_TYPES(leaf, LeafArguments, leaf_share, 1)
TRIREME_IN_LONG_TYPES(squares, SquaresArguments, squares_share, kWarp)
