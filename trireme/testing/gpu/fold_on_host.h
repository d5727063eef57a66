// Host versions of the GPU's fold kernels (kernel/cuda/fold.h), by kernel name. The fake GPU runs
// them, and tests compare them with kernel::fold.
#pragma once

#include <string_view>

#include "trireme/kernel/cuda/fold.h"

namespace trireme::inline v0::testing {

using FoldOnHost = void (*)(const kernel::cuda::FoldArguments& arguments);
/// Null if fold.cu does not define `kernel_name`.
FoldOnHost fold_on_host(std::string_view kernel_name);

}  // namespace trireme::inline v0::testing
