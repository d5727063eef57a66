#include "trireme/sync/not_finite.h"

#include <utility>

#include "trireme/sync/parameter_sync.h"

namespace trireme::inline v0::parallel {

NotFiniteBudget::NotFiniteBudget(std::int64_t budget, std::string key)
    : budget_(budget), key_(std::move(key)) {
  if (budget_ < 0)
    throw ConfigError(key_ + " = " + std::to_string(budget_),
                      {.operation = "config", .advice = "Use 0 or more."});
}

void NotFiniteBudget::take(const StepRefused& refused) {
  if (refused.exit_code() != Refusal::kNotFinite || budget_ == 0) throw StepRefused(refused);
  if (left_out_ < budget_) {
    ++left_out_;
    return;
  }
  throw StepRefused(refused.code(),
                    refused.message() + "; " + std::to_string(left_out_) +
                        (left_out_ == 1 ? " step was" : " steps were") +
                        " left out before for such numbers, and " + key_ + " is " +
                        std::to_string(budget_),
                    refused.context());
}

}  // namespace trireme::inline v0::parallel
