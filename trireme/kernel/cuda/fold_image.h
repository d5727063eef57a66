// The fold kernels as this build brings them: a fat binary for the CUDA driver, the kernels' names,
// and how fold_steps() become their arguments. Built where CMake finds nvcc (TRIREME_CUDA); the
// rest works everywhere. Pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "trireme/base/dtype.h"
#include "trireme/kernel/reduce.h"

namespace trireme {
inline namespace v0 {
namespace kernel {
namespace cuda {

/// For cuModuleLoadData; empty where this build has no CUDA.
std::span<const std::byte> fold_image() noexcept;
/// "trireme_fold_sum_f32". CheckFailure where can_combine() is false.
std::string fold_kernel_name(Combine op, DType dtype);
/// FoldArguments::merges: after operand k, how many merges of the last two partial sums.
std::vector<std::uint8_t> merge_counts(std::span<const FoldStep> steps, std::size_t num_operands);

}  // namespace cuda
}  // namespace kernel
}  // namespace v0
}  // namespace trireme
