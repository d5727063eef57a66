// Process-wide settings that make a micro-batch's bits depend on its identity only
// (docs/numerics.md).
//
// Call once at the start, before the first tensor operation. `kernel_threads` is then exactly the
// number of threads of every kernel: OpenMP and MKL may not adjust it by load or cgroup.
#pragma once

#include <exception>
#include <string>

#include "trireme/comm/communicator.h"

namespace trireme::inline v0::tensor {

struct ProcessSetup {
  int kernel_threads = 1;
  bool reproducible = true;
};
void set_up_process(const ProcessSetup& setup);
/// The same for a library in a user's program: `kernel_threads` 0 keeps what was set up, or is 1.
void set_up_kernels(int kernel_threads);
/// The threads of a kernel that are set up, on which bits depend: "2 threads a kernel".
std::string describe_threads();
/// Before a rank of `world` computes on a device (nothing for the CPU): collectives reach the device's
/// memory. Reproducible: LibTorch's operators take their deterministic form, in the whole process, and
/// one that has none throws. Else the fastest form runs.
/// After set_up_kernels(), which asks for the deterministic forms.
void set_up_device(comm::Communicator& world, Device device, bool reproducible);
/// LibTorch's errors about a device without memory (ExitCode::NoDeviceMemory), an operator without a
/// deterministic form and cuBLAS, said in the job's words; any other error as it is.
std::exception_ptr explained(const std::exception_ptr& error);
/// Sets the same thread count for kernels called from this thread: OpenMP's and MKL's counts are
/// per thread. Call it after set_up_process().
void set_up_thread();

}  // namespace trireme::inline v0::tensor
