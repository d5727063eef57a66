#include "trireme/tensor/determinism.h"

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <dlfcn.h>
#include <malloc.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>

#include "trireme/base/check.h"
#include "trireme/tensor/allocation.h"

namespace trireme::inline v0::tensor {

namespace {
std::atomic<bool> is_set_up{false};
std::atomic<int> threads_of_a_kernel{1};

void set_threads(int count) {
  at::set_num_threads(count);  // also MKL's count, and mkl_set_dynamic(false)
  TRIREME_CHECK(at::get_num_threads() == count);
}
}  // namespace

void set_up_kernels(int kernel_threads) {
  if (kernel_threads > 0 || !is_set_up)
    set_up_process({.kernel_threads = std::max(kernel_threads, 1)});
}
bool process_is_set_up() noexcept { return is_set_up; }

void set_up_thread() {
  TRIREME_CHECK(process_is_set_up());
  set_threads(threads_of_a_kernel);
}

void set_up_process(const ProcessSetup& setup) {
  // OMP_DYNAMIC in the environment would let OpenMP use fewer threads under load. The function is
  // looked up in the runtime that LibTorch brought, so that no second one is linked.
  if (auto* set_dynamic = reinterpret_cast<void (*)(int)>(dlsym(RTLD_DEFAULT, "omp_set_dynamic"))) {
    set_dynamic(0);
  }
  name_allocation_failures();
  set_threads(setup.kernel_threads);
  threads_of_a_kernel = setup.kernel_threads;
  if (setup.reproducible) {
    at::globalContext().setDeterministicAlgorithms(true, /*warn_only=*/true);
    at::globalContext().setDeterministicFillUninitializedMemory(false);  // NaN fills cost a pass
    at::globalContext().setBenchmarkCuDNN(false);
    ::setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8",
             /*overwrite=*/0);  // else cuBLAS sums as it likes
  }
  is_set_up = true;
  // Activations are allocated and freed every step: keep their pages to avoid new page faults.
  mallopt(M_MMAP_THRESHOLD, 1 << 30);
  mallopt(M_TRIM_THRESHOLD, 2147483647);
  mallopt(M_TOP_PAD, 64 << 20);
}

}  // namespace trireme::inline v0::tensor
