#include "trireme/tensor/functions/second_derivative.h"

#include <c10/core/GradMode.h>

#include "trireme/base/error.h"

namespace trireme::inline v0::tensor {

void refuse_second_derivative() {
  if (!c10::GradMode::is_enabled()) return;
  throw ConfigError(
      "create_graph = true asks for second derivatives, and Trireme's functions have only first "
      "ones",
      {.operation = "backward",
       .advice = "Leave create_graph out, or build the blocks that are differentiated twice from "
                 "LibTorch's operations."});
}

}  // namespace trireme::inline v0::tensor
