// Host versions of the GPU's kernels (kernel/cuda/), by kernel name. The fake GPU runs them, and tests
// compare them with the CPU's.
#pragma once

#include <cstddef>
#include <functional>
#include <string_view>

namespace trireme::inline v0::testing {

struct KernelOnHost {
  std::size_t argument_bytes = 0;
  void (*run)(const void* arguments) = nullptr;
  /// Calls `touch` for the memory that a call reads and writes: an address, and at least so many bytes.
  void (*touches)(const void* arguments,
                  const std::function<void(const void* at, std::size_t bytes)>& touch) = nullptr;
};
/// Null if kernels.cu does not define `name`.
const KernelOnHost* kernel_on_host(std::string_view name);

}  // namespace trireme::inline v0::testing
