// What of this process's processor and its libraries decides bits, as one line: part of the
// identity (NUMERICS.md). Ranks of which one has fewer instructions, or was told to use fewer
// (ONEDNN_MAX_CPU_ISA), compute other bits.
#pragma once

#include <functional>
#include <string>

namespace trireme {
inline namespace v0 {
namespace tensor {

/// "LibTorch 2.13.0, AMD, kernels avx512 bf16, ATen AVX512", and what the environment sets of
/// the variables by which oneDNN, MKL and ATen are told to use other instructions, such as
/// ", ONEDNN_MAX_CPU_ISA=AVX2". `environment` gives a variable's value or null; empty: the
/// process's own.
std::string describe_processor(const std::function<const char*(const char*)>& environment = {});

}  // namespace tensor
}  // namespace v0
}  // namespace trireme
