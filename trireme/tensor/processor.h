// One line that describes what decides bits in this process's processor and libraries. It is part
// of the run's identity (docs/numerics.md): a rank with fewer instructions, or told to use fewer
// (ONEDNN_MAX_CPU_ISA), computes other bits.
#pragma once

#include <functional>
#include <string>

namespace trireme::inline v0::tensor {

/// "LibTorch 2.13.0, AMD, kernels avx512 bf16, ATen AVX512", and the environment variables that
/// select instructions in oneDNN, MKL and ATen, such as ", ONEDNN_MAX_CPU_ISA=AVX2". `environment`
/// returns a variable's value or null; empty: the process's environment.
std::string describe_processor(const std::function<const char*(const char*)>& environment = {});

}  // namespace trireme::inline v0::tensor
