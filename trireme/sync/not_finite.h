// NotFiniteBudget: how many steps a training may skip because a loss, a gradient or a sum of
// gradients holds a NaN or an infinity. An occasional non-finite step is expected (a bad batch, a
// hardware fault); many mean divergence.
//
// Every rank sees the same refusals (the vote, or equal sums), so all ranks count alike.
#pragma once

#include <cstdint>
#include <string>

#include "trireme/base/error.h"

namespace trireme::inline v0::parallel {

class NotFiniteBudget {
 public:
  /// `key`: the option's name, for messages. ConfigError if `budget` is negative.
  NotFiniteBudget(std::int64_t budget, std::string key);
  /// Counts a refused step as skipped. Rethrows the refusal if it has another reason or the budget
  /// is 0; if the budget is spent, with the count in its message.
  void take(const StepRefused& refused);
  std::int64_t left_out() const noexcept { return left_out_; }
  /// Restores a saved count.
  void restore(std::int64_t left_out) noexcept { left_out_ = left_out; }

 private:
  std::int64_t budget_, left_out_ = 0;
  std::string key_;
};

}  // namespace trireme::inline v0::parallel
