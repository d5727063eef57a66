// Operators that return another view of the same memory: as_strided, view, unfold ... They touch no
// element, so the CPU's kernel can work on a CPU tensor whose memory nobody may touch.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

namespace trireme::inline v0::testing {

bool is_view(const c10::FunctionSchema& schema);
/// Returns the results.
torch::jit::Stack run_view(const c10::OperatorHandle& op, const torch::jit::Stack& arguments);

}  // namespace trireme::inline v0::testing
