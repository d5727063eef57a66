#include "trireme/tensor/determinism.h"

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <ATen/ops/exp.h>
#include <ATen/ops/ones.h>
#include <dlfcn.h>
#include <malloc.h>

#include <algorithm>
#include <atomic>

#include "trireme/base/check.h"
#include "trireme/base/error.h"
#include "trireme/base/words.h"
#include "trireme/comm/nccl/gpu_library.h"
#include "trireme/tensor/allocation.h"
#include "trireme/tensor/devices/device.h"
#include "trireme/tensor/products/kernel_table.h"

namespace trireme::inline v0::tensor {

namespace {
std::atomic<bool> is_set_up{false};
std::atomic<int> threads_of_a_kernel{1};

// For the calling thread. OMP_DYNAMIC in the environment would let OpenMP use fewer threads under
// load. The function is looked up in the runtime that LibTorch brought, so that no second one is
// linked.
void set_threads(int count) {
  if (auto* set_dynamic = reinterpret_cast<void (*)(int)>(dlsym(RTLD_DEFAULT, "omp_set_dynamic")))
    set_dynamic(0);
  at::set_num_threads(count);  // also MKL's count, and mkl_set_dynamic(false)
  TRIREME_CHECK(at::get_num_threads() == count);
}

// LibTorch computes exp, log, tanh, sqrt and others with MKL, which looks for the processor in the
// first of these calls. A thread that calls meanwhile can read half a result, and then computes its
// part with only about 12 correct bits (pytorch/pytorch#188792). So one thread calls first, while
// the others wait.
void choose_vector_functions() {
  [[maybe_unused]] static const at::Tensor first = at::exp(at::ones({1}, at::kFloat));
}
}  // namespace

void set_up_kernels(int kernel_threads) {
  if (kernel_threads > 0 || !is_set_up)
    set_up_process({.kernel_threads = std::max(kernel_threads, 1)});
  else
    set_up_thread();
}

// With warn_only, flash attention's backward pass would stay nondeterministic (LibTorch's
// attention_backward.cu).
void set_up_device(comm::Communicator& world, Device device, bool reproducible) {
  if (device.kind == DeviceKind::Cpu) return;
  world.stage_through(make_device_copies());
  at::globalContext().setDeterministicAlgorithms(reproducible, /*warn_only=*/false);
  at::globalContext().setBenchmarkCuDNN(!reproducible);
}

std::exception_ptr explained(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const c10::OutOfMemoryError& full) {
    const std::string said = full.what_without_backtrace();
    return std::make_exception_ptr(ResourceError(
        ExitCode::NoDeviceMemory,
        "the device has no memory left: " + said.substr(0, said.find('\n')),
        {.operation = "train",
         .advice = "Use a smaller batch.micro, memory.recompute, memory.offload, zero3 or "
                   "fewer train.ranks_per_device."}));
  } catch (const c10::Error& refused) {
    const std::string said = refused.what_without_backtrace();
    if (said.find(comm::nccl::kCublasOrder) != std::string::npos) {
      return std::make_exception_ptr(ConfigError(
          std::string("cuBLAS would add in no fixed order, because ") + comm::nccl::kCublasOrder +
              " did not have the needed value at this process's first product on a GPU",
          {.operation = "step",
           .advice =
               std::string("Do not set ") + comm::nccl::kCublasOrder +
               " yourself (the Job does), and make the Job before the first use of the GPU; or "
               "set train.reproducible = false (JobOptions::reproducible)."}));
    }
    const std::size_t end = said.find(" does not have a deterministic implementation");
    if (end == std::string::npos) return error;
    return std::make_exception_ptr(ConfigError(
        said.substr(0, end) +
            " has no deterministic form on this device, so weights would differ " +
            "from run to run",
        {.operation = "step",
         .advice =
             "Use train.reproducible = false (JobOptions::reproducible), or another operator."}));
  } catch (...) {
    return error;
  }
}

std::string describe_threads() { return counted(threads_of_a_kernel, "thread") + " a kernel"; }

void set_up_thread() {
  TRIREME_CHECK(is_set_up);
  set_threads(threads_of_a_kernel);
}

void set_up_process(const ProcessSetup& setup) {
  kernel_table();  // refuses wrong environment variables before anything starts
  name_allocation_failures();
  set_threads(setup.kernel_threads);
  threads_of_a_kernel = setup.kernel_threads;
  choose_vector_functions();
  if (setup.reproducible) {
    if (!at::globalContext().deterministicAlgorithms())  // else something stricter is set
      at::globalContext().setDeterministicAlgorithms(true, /*warn_only=*/true);
    at::globalContext().setDeterministicFillUninitializedMemory(false);  // NaN fills cost a pass
    at::globalContext().setBenchmarkCuDNN(false);
    comm::nccl::fix_cublas_order();
  }
  is_set_up = true;
  // Activations are allocated and freed every step: keep their pages to avoid new page faults.
  mallopt(M_MMAP_THRESHOLD, 1 << 30);
  mallopt(M_TRIM_THRESHOLD, 2147483647);
  mallopt(M_TOP_PAD, 64 << 20);
}

}  // namespace trireme::inline v0::tensor
