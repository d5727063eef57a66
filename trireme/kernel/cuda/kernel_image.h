// The GPU kernels of this build (kernels.cu): a fat binary for the CUDA driver, the kernels' names,
// and the conversion of fold_steps() to kernel arguments. The binary is built only if CMake finds
// nvcc (TRIREME_CUDA); the rest works everywhere. Pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/base/buffer.h"
#include "trireme/kernel/reduce.h"

namespace trireme::inline v0::kernel {
namespace cuda {

/// The image for cuModuleLoadData; empty in a build without CUDA.
std::span<const std::byte> kernel_image() noexcept;
/// "CUDA 13.0 for sm_80, sm_90 and later": the image's compiler and GPUs.
std::string kernel_image_origin();
/// A kernel of kernels.cu: ("update", F32) is "trireme_update_f32".
std::string kernel_name(std::string_view what, DType dtype);
/// For example "trireme_fold_sum_f32". CheckFailure if can_combine() is false.
std::string fold_kernel_name(Combine op, DType dtype);
/// FoldArguments::merges: how many times the last two partial sums are merged after each operand.
std::vector<std::uint8_t> merge_counts(std::span<const FoldStep> steps, std::size_t num_operands);

}  // namespace cuda
}  // namespace trireme::inline v0::kernel
