// The names that the files of Trireme's autograd functions share.
#pragma once

#include <torch/csrc/autograd/custom_function.h>

#include "trireme/tensor/functions/second_derivative.h"
#include "trireme/tensor/functions/typed.h"

namespace trireme::inline v0::tensor {

using torch::autograd::AutogradContext;
using torch::autograd::Variable;
using torch::autograd::variable_list;

}  // namespace trireme::inline v0::tensor
