// NotFiniteBudget: how many steps a training may leave out because a loss, a gradient or a sum of
// gradients holds a NaN or an infinity. One in a while is a bad batch or a rank's bad luck; many
// are a training that has diverged.
//
// Every rank sees the same refusals (the vote, or equal sums), so all count alike without asking.
#pragma once

#include <cstdint>
#include <string>

#include "trireme/base/error.h"

namespace trireme {
inline namespace v0 {
namespace parallel {

class NotFiniteBudget {
 public:
  /// `key`: the option's name, for messages. ConfigError where `budget` is negative.
  NotFiniteBudget(std::int64_t budget, std::string key);
  /// Counts a refused step that is left out. Throws the refusal on where it has another reason or
  /// no budget was asked for; where the budget is spent, with the count in its sentence.
  void take(const StepRefused& refused);
  std::int64_t left_out() const noexcept { return left_out_; }
  /// As saved.
  void restore(std::int64_t left_out) noexcept { left_out_ = left_out; }

 private:
  std::int64_t budget_, left_out_ = 0;
  std::string key_;
};

}  // namespace parallel
}  // namespace v0
}  // namespace trireme
