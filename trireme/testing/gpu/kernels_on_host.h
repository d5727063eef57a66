// Host versions of the GPU's kernels (kernel/cuda/), by kernel name. The fake GPU runs them, and
// tests compare them with the CPU's.
#pragma once

#include <cstddef>
#include <functional>
#include <string_view>

namespace trireme::inline v0::testing {

/// Called with an array of a kernel's arguments, which it may move, and the array's least size.
using VisitArray = std::function<void(void*& at, std::size_t bytes, bool writes)>;

struct KernelOnHost {
  std::size_t argument_bytes = 0;
  void (*run)(const void* arguments) = nullptr;
  /// For each array of the arguments that is not null.
  void (*each_array)(void* arguments, const VisitArray& visit) = nullptr;
};
/// Null if kernels.cu does not define `name`.
const KernelOnHost* kernel_on_host(std::string_view name);

}  // namespace trireme::inline v0::testing
