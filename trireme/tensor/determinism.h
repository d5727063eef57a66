// The process-wide set-up that makes a micro-batch's bits a function of its identity (NUMERICS.md).
//
// Call once at the start, before the first tensor operation. `kernel_threads` is then exactly the
// number of threads of every kernel: OpenMP and MKL may not adjust it by load or cgroup.
#pragma once

namespace trireme {
inline namespace v0 {
namespace tensor {

struct ProcessSetup {
  int kernel_threads = 1;
  bool reproducible = true;
};
void set_up_process(const ProcessSetup& setup);
/// The same count for kernels of another thread: OpenMP's and MKL's counts are a thread's own. The
/// process is set up.
void set_up_thread();
/// Whether set_up_process() was done.
bool process_is_set_up() noexcept;

}  // namespace tensor
}  // namespace v0
}  // namespace trireme
