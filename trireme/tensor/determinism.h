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
/// set_up_process() in a user's program; `kernel_threads` 0 keeps the earlier setting, or 1, and
/// applies it to the calling thread.
void set_up_kernels(int kernel_threads);
/// The threads of a kernel that are set up, on which bits depend: "2 threads a kernel".
std::string describe_threads();
/// Lets the collectives of `world` reach the memory of `device`; does nothing for the CPU. If
/// `reproducible`, LibTorch's operators take their deterministic form in the whole process, and an
/// operator without one throws; otherwise the fastest form runs. Call it after set_up_kernels(),
/// whose setting it replaces.
void set_up_device(comm::Communicator& world, Device device, bool reproducible);
/// Turns LibTorch's errors about device memory (to ExitCode::NoDeviceMemory), operators without a
/// deterministic form and cuBLAS into errors that name options which help. Returns others
/// unchanged.
std::exception_ptr explained(const std::exception_ptr& error);
/// Sets the same thread count for kernels called from this thread: OpenMP's and MKL's counts are
/// per thread. Call it after set_up_process().
void set_up_thread();

}  // namespace trireme::inline v0::tensor
