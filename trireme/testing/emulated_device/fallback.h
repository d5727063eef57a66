// Every operator of LibTorch's CPU backend, on the emulated device: the results are allocated, and
// the CPU's kernel runs later, in the order of the current stream, over the same memory.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

namespace trireme::inline v0::testing {

/// A boxed kernel for any operator but those in operators.h.
void run_on_device(const c10::OperatorHandle& op, torch::jit::Stack* stack);

}  // namespace trireme::inline v0::testing
