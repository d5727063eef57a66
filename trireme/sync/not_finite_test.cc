#include "trireme/sync/not_finite.h"

#include <gtest/gtest.h>

namespace trireme::parallel::not_finite_test {
namespace {

StepRefused refusal(int code) {
  return StepRefused(static_cast<ExitCode>(code), "the loss is nan", {.rank = 1});
}

TEST(NotFiniteBudget, CountsUpToItAndThenRefuses) {
  NotFiniteBudget budget(2, "train.skip_not_finite");
  budget.take(refusal(21));
  EXPECT_THROW(budget.take(refusal(20)), StepRefused) << "a user's exception is no number";
  EXPECT_EQ(budget.left_out(), 1);
  budget.take(refusal(21));
  try {
    budget.take(refusal(21));
    FAIL() << "the third was taken";
  } catch (const StepRefused& error) {
    EXPECT_EQ(error.message(),
              "the loss is nan; 2 steps were left out before for such numbers, and "
              "train.skip_not_finite is 2");
    EXPECT_EQ(error.exit_code(), 21);
    EXPECT_EQ(error.rank(), 1);
  }
  EXPECT_EQ(budget.left_out(), 2);
}

TEST(NotFiniteBudget, GoesOnWhereItWasSaved) {
  NotFiniteBudget budget(2, "key");
  budget.restore(2);
  EXPECT_THROW(budget.take(refusal(21)), StepRefused);
}

TEST(NotFiniteBudget, OfNoneRefusesAtOnce) {
  NotFiniteBudget budget(0, "key");
  try {
    budget.take(refusal(21));
    FAIL() << "it was taken";
  } catch (const StepRefused& error) {
    EXPECT_EQ(error.message(), "the loss is nan");
  }
  EXPECT_THROW(NotFiniteBudget(-1, "key"), ConfigError);
}

}  // namespace
}  // namespace trireme::parallel::not_finite_test
