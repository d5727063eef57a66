// The kernel::Combine of a ReduceOp. A Mean is a Sum that is divided once at the end.
#pragma once

#include "trireme/comm/communicator.h"
#include "trireme/kernel/reduce.h"

namespace trireme::inline v0::comm {

constexpr kernel::Combine combine_of(ReduceOp op) noexcept {
  switch (op) {
    case ReduceOp::Min:
      return kernel::Combine::Min;
    case ReduceOp::Max:
      return kernel::Combine::Max;
    case ReduceOp::Product:
      return kernel::Combine::Product;
    default:
      return kernel::Combine::Sum;
  }
}

}  // namespace trireme::inline v0::comm
