// Checks what memory.offload puts into its file under each layout. strategy_test.cc checks that it
// changes no bit.
#include "trireme/sync/offload.h"
#include "trireme/optim/optimizer.h"

#include <gtest/gtest.h>

#include "trireme/models/figures.h"
#include "trireme/strategy/strategy.h"
#include "trireme/sync/strategy_context.h"
#include "trireme/testing/run_ranks.h"

namespace trireme::offload_test {
namespace {

// Bytes per parameter on each of two ranks. The model is so large that page rounding is small.
double bytes_a_parameter(const std::string& sync, const std::string& precision) {
  double bytes = 0;
  testing::run_ranks(2, [&](testing::RankContext& rank) {
    const parallel::StrategyContext env{.world = rank.world.get(), .assign = [](const auto&) {}};
    const Strategy strategy(
        env,
        models::make_gpt(
            {.layers = 2, .heads = 2, .width = 128, .block = 16, .precision = precision}),
        {.sync = sync, .precision = precision, .offload = ::testing::TempDir()},
        optim::make_optimizer(AdamW{}));
    if (rank.rank == 0)
      bytes = static_cast<double>(strategy.offloaded_bytes()) /
              static_cast<double>(strategy.num_parameters());
  });
  return bytes;
}

TEST(Offload, TakesAllThatForwardAndBackwardDoNotRead) {
  constexpr double kPages = 0.3;  // allows for rounding each tensor up to whole pages
  EXPECT_NEAR(bytes_a_parameter("plain", "fp32"), 8, kPages);
  EXPECT_NEAR(bytes_a_parameter("plain", "bf16"), 8 + 4, kPages);
  EXPECT_NEAR(bytes_a_parameter("zero1", "fp32"), 8. / 2, kPages);
  // Weights that are gathered block by block are in the file, too.
  EXPECT_NEAR(bytes_a_parameter("zero3", "fp32"), (8 + 4) / 2., kPages);
  EXPECT_NEAR(bytes_a_parameter("zero3", "bf16"), (8 + 4 + 2) / 2., kPages);
}

}  // namespace
}  // namespace trireme::offload_test
