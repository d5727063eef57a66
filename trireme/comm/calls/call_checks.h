// CallChecks: checks a call's arguments. Throws ConfigError before anything is sent. `operation`
// names the function that the user called. Thread safe.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>

#include "trireme/base/buffer.h"
#include "trireme/comm/communicator.h"

namespace trireme::inline v0::comm {

class CallChecks {
 public:
  CallChecks(int rank, int size) : rank_(rank), size_(size) {}
  /// `what`: the error text, or a function that returns it, called only if the call is refused.
  template <class What>
  void require(bool condition, std::string_view operation, const What& what) const {
    if (condition) return;
    if constexpr (std::is_invocable_v<What>) {
      refuse(operation, what());
    } else {
      refuse(operation, what);
    }
  }
  void reducible(DType dtype, ReduceOp op, std::string_view operation) const;
  /// One count for each rank.
  void counts(std::span<const std::size_t> counts, std::string_view operation) const;
  void root(int root, std::string_view operation) const;

 private:
  [[noreturn]] void refuse(std::string_view operation, const std::string& what) const;
  const int rank_, size_;
};

}  // namespace trireme::inline v0::comm
