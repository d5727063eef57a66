#include "trireme/tensor/processor.h"

#include <ATen/Version.h>
#include <torch/version.h>

#include <cstdlib>

#include "trireme/kernel/isa.h"

namespace trireme::inline v0::tensor {
namespace {

// Variables of oneDNN (each also under its old name), MKL and ATen. The libraries read them once,
// at their first kernel.
constexpr const char* kVariables[] = {"ONEDNN_MAX_CPU_ISA",         "DNNL_MAX_CPU_ISA",
                                      "ONEDNN_DEFAULT_FPMATH_MODE", "DNNL_DEFAULT_FPMATH_MODE",
                                      "MKL_ENABLE_INSTRUCTIONS",    "MKL_CBWR",
                                      "MKL_DEBUG_CPU_TYPE"};

const char* vendor_name() {
  const kernel::Vendor vendor = kernel::vendor();
  return vendor == kernel::Vendor::Intel ? "Intel"
         : vendor == kernel::Vendor::Amd ? "AMD"
                                         : "other";
}

}  // namespace

std::string describe_processor(const std::function<const char*(const char*)>& environment) {
  std::string text = "LibTorch ";
  text.append(TORCH_VERSION).append(", ").append(vendor_name()).append(", kernels ");
  text.append(kernel::name_of(kernel::isa()));
  if (kernel::has_bf16_products()) text.append(" bf16");
  text.append(", ATen ").append(at::get_cpu_capability());  // honours ATEN_CPU_CAPABILITY
  for (const char* variable : kVariables) {
    const char* value = environment ? environment(variable) : std::getenv(variable);
    if (value != nullptr && *value != '\0')
      text.append(", ").append(variable).append("=").append(value);
  }
  return text;
}

}  // namespace trireme::inline v0::tensor
