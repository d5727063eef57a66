#include "trireme/ps/worker/optimizer_text.h"

#include <gtest/gtest.h>

#include "trireme/ps/settings.h"

namespace trireme::inline v0::ps {
namespace {

// Servers and workers that were told less than the program asked for would train something else.
TEST(OptimizerText, HasTheNumbersThatNoConfigurationKeyHas) {
  const OptimizerOptions read =
      optimizer_from_text(to_text(Ftrl{.learning_rate = 0.5, .initial_accumulator = 1}));
  ASSERT_TRUE(std::holds_alternative<Ftrl>(read));
  EXPECT_EQ(std::get<Ftrl>(read).learning_rate, 0.5);
  EXPECT_EQ(std::get<Ftrl>(read).initial_accumulator, 1);
  const OptimizerOptions factored = optimizer_from_text(to_text(Adafactor{.epsilon = 1e-3}));
  ASSERT_TRUE(std::holds_alternative<Adafactor>(factored));
  EXPECT_EQ(std::get<Adafactor>(factored).epsilon, 1e-3);
}

TEST(OptimizerText, ADifferenceIsTheFirstNumberThatIsAnother) {
  const Settings server{.model = ServedModel({{.name = "w", .shape = {3}}}, 1),
                        .optimizer = AdamW{.learning_rate = 0.01}};
  const auto difference = [&](const OptimizerOptions& optimizer) {
    Settings worker = server;
    worker.optimizer = optimizer;
    return server.difference(worker);
  };
  EXPECT_EQ(difference(AdamW{.learning_rate = 0.01}), "");
  EXPECT_EQ(difference(Sgd{}), "its optimizer is sgd, the server's is adamw");
  EXPECT_EQ(difference(AdamW{.learning_rate = 0.02}),
            "its adamw's learning_rate is 0.02, the server's is 0.01");
  EXPECT_EQ(difference(AdamW{.learning_rate = 0.01, .groups = {{.match = "*"}}}),
            "its adamw's groups is [{\"match\":\"*\",\"rate_factor\":1.0}], the server's is []");
}

}  // namespace
}  // namespace trireme::inline v0::ps
