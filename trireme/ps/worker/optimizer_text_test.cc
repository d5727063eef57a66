#include "trireme/ps/worker/optimizer_text.h"

#include <gtest/gtest.h>

namespace trireme::inline v0::ps {
namespace {

// Servers and workers that were told less than the program asked for would train something else.
TEST(OptimizerText, HasTheNumbersThatNoConfigurationKeyHas) {
  const OptimizerOptions read =
      optimizer_from_text(to_text(Ftrl{.learning_rate = 0.5, .initial_accumulator = 1}));
  ASSERT_TRUE(std::holds_alternative<Ftrl>(read));
  EXPECT_EQ(std::get<Ftrl>(read).learning_rate, 0.5);
  EXPECT_EQ(std::get<Ftrl>(read).initial_accumulator, 1);
}

}  // namespace
}  // namespace trireme::inline v0::ps
