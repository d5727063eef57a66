#include "trireme/tensor/determinism.h"

#include <c10/util/Exception.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "trireme/base/error.h"

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

}  // namespace
}  // namespace trireme::inline v0::tensor
