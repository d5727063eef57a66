// Trireme's autograd functions have first derivatives only: kernels compute their gradients without a
// graph, so a second derivative through them would lack terms without a word.
#pragma once

namespace trireme::inline v0::tensor {

/// Throws ConfigError in a backward pass with create_graph = true. Call it first in a function's
/// backward. Thread safe.
void refuse_second_derivative();

}  // namespace trireme::inline v0::tensor
