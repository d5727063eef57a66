// LibTorch's failures to get memory, as ResourceError (exit code 170): what was asked for, and what
// was left.
#pragma once

#include <cstddef>
#include <string>

namespace trireme {
inline namespace v0 {
namespace tensor {

/// From now on, in the whole process, an allocation on the CPU that fails throws ResourceError, and
/// so does a large one beyond what this machine and its control group have, which would otherwise
/// end the process when it is used. Any thread; as often as wanted.
void name_allocation_failures();

/// Throws that error: `what`, "memory for a tensor of 8000 bytes".
[[noreturn]] void refuse_allocation(const std::string& what);

}  // namespace tensor
}  // namespace v0
}  // namespace trireme
