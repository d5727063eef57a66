#include "trireme/comm/calls/call_checks.h"

#include "trireme/base/error.h"
#include "trireme/kernel/reduce.h"

namespace trireme::inline v0::comm {

void CallChecks::refuse(std::string_view operation, const std::string& what) const {
  throw ConfigError(
      what, {.rank = rank_, .operation = std::string(operation), .advice = "Correct the call."});
}

void CallChecks::reducible(DType dtype, ReduceOp op, std::string_view operation) const {
  require(kernel::can_combine(dtype), operation,
          [&] { return std::string(trireme::name_of(dtype)) + " cannot be reduced"; });
  require(op != ReduceOp::Mean || kernel::can_divide(dtype), operation,
          "the Mean of integers is not defined");
}

void CallChecks::counts(std::span<const std::size_t> counts, std::string_view operation) const {
  require(counts.size() == static_cast<std::size_t>(size_), operation, [&] {
    return std::to_string(counts.size()) + " counts given for " + std::to_string(size_) + " ranks";
  });
}

void CallChecks::root(int root, std::string_view operation) const {
  require(root >= 0 && root < size_, operation, [&] {
    return "the root is rank " + std::to_string(root) + ", but the group has ranks 0 to " +
           std::to_string(size_ - 1);
  });
}

}  // namespace trireme::inline v0::comm
