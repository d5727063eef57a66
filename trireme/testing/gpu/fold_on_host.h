// The host's compilation of the GPU's fold kernels (kernel/cuda/fold.h), by the kernel's name: what
// the fake GPU runs, and what tests compare with kernel::fold.
#pragma once

#include <string_view>

#include "trireme/kernel/cuda/fold.h"

namespace trireme {
inline namespace v0 {
namespace testing {

using FoldOnHost = void (*)(const kernel::cuda::FoldArguments& arguments);
/// Null for a name that fold.cu does not define.
FoldOnHost fold_on_host(std::string_view kernel_name);

}  // namespace testing
}  // namespace v0
}  // namespace trireme
