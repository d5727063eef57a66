// Turns LibTorch's allocation failures into ResourceError (exit code 170), which says how much was
// asked for and how much was left.
#pragma once

#include <cstddef>
#include <string>

namespace trireme::inline v0::tensor {

/// From now on, in the whole process, a failed CPU allocation throws ResourceError. So does one of
/// 256 MiB or more that exceeds this machine's memory or what its control group has left: the
/// process would be killed when it uses that memory. Thread safe; may be called again.
void name_allocation_failures();

/// Throws that error; `what` is such as "a tensor of 8000 bytes".
[[noreturn]] void refuse_allocation(const std::string& what);

}  // namespace trireme::inline v0::tensor
