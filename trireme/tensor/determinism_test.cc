#include "trireme/tensor/determinism.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <c10/util/Exception.h>
#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <string>
#include <thread>

#include "trireme/base/error.h"

namespace {
std::atomic<int> searches{0};
}

// In place of MKL's, which the first of its vector functions calls; not thread safe there.
extern "C" int mkl_serv_vml_cpu_detect() {
  ++searches;
  return reinterpret_cast<int (*)()>(dlsym(RTLD_NEXT, "mkl_serv_vml_cpu_detect"))();
}

namespace trireme::inline v0::tensor {
namespace {

using ::testing::HasSubstr;

std::exception_ptr refused(const std::string& text) {
  try {
    TORCH_CHECK(false, text);
  } catch (...) {
    return std::current_exception();
  }
}

std::string said(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(explained(error));
  } catch (const ConfigError& found) {
    return found.what();
  } catch (const c10::Error& found) {
    return "LibTorch: " + std::string(found.what_without_backtrace());
  }
}

TEST(Determinism, RefusalsAreExplainedInTheJobsWords) {
  EXPECT_THAT(said(refused("cumsum_cuda_kernel does not have a deterministic implementation, but")),
              HasSubstr("cumsum_cuda_kernel has no deterministic form on this device"));
  const std::string cublas = said(refused(
      "this operation is not deterministic because it uses CuBLAS and you have CUDA >= 10.2. To "
      "enable deterministic behavior in this case, you must set an environment variable before "
      "running your PyTorch application: CUBLAS_WORKSPACE_CONFIG=:4096:8"));
  EXPECT_THAT(cublas, HasSubstr("CUBLAS_WORKSPACE_CONFIG did not have the needed value"));
  EXPECT_THAT(cublas, HasSubstr("make the Job before the first use of the GPU"));
  EXPECT_EQ(said(refused("another")), "LibTorch: another");
}

// Two threads that search at a time can compute with few correct bits.
TEST(Determinism, NoKernelsThreadsSearchForTheProcessor) {
  set_up_process({.kernel_threads = 2});
  const int before = searches;
  at::exp(at::ones({1 << 16}));
  EXPECT_EQ(searches, before);
  EXPECT_EQ(searches > 0, dlsym(RTLD_NEXT, "mkl_serv_vml_cpu_detect") != nullptr)
      << "another MKL searches elsewhere: this test sees nothing";
}

// As a thread that starts with OMP_DYNAMIC=true in the environment.
TEST(Determinism, OpenMPGivesAThreadsKernelsAllTheirThreads) {
  const auto set_dynamic = reinterpret_cast<void (*)(int)>(dlsym(RTLD_DEFAULT, "omp_set_dynamic"));
  const auto dynamic = reinterpret_cast<int (*)()>(dlsym(RTLD_DEFAULT, "omp_get_dynamic"));
  ASSERT_NE(set_dynamic, nullptr);
  ASSERT_NE(dynamic, nullptr);
  set_up_process({.kernel_threads = 2});
  std::thread([&] {
    set_dynamic(1);
    set_up_thread();
    EXPECT_EQ(dynamic(), 0);
    EXPECT_EQ(at::get_num_threads(), 2);
  }).join();
}

TEST(Determinism, KernelsAreSetUpInTheThreadThatAsks) {
  const auto set_threads =
      reinterpret_cast<void (*)(int)>(dlsym(RTLD_DEFAULT, "omp_set_num_threads"));
  ASSERT_NE(set_threads, nullptr);
  set_up_process({.kernel_threads = 2});
  std::thread([&] {
    at::get_num_threads();  // else LibTorch sets this thread's number later
    set_threads(1);
    set_up_kernels(0);
    EXPECT_EQ(at::get_num_threads(), 2);
  }).join();
}

}  // namespace
}  // namespace trireme::inline v0::tensor
