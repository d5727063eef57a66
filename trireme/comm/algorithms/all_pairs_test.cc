#include <gtest/gtest.h>

#include <vector>

#include "trireme/comm/algorithms/algorithms.h"
#include "trireme/comm/simulate.h"

namespace trireme::comm {
namespace {

// On the virtual clock of a link without latency: time is bytes.
double seconds(const char* algorithm, DType dtype, std::size_t count) {
  double seconds = 0;
  SimulationOptions options;
  options.network.alpha = {};
  options.network.jitter = {};
  options.network.bytes_per_second = 1e9;
  simulate(4, options, [&](SimulatedRank& rank) {
    std::vector<std::byte> data(count * size_of(dtype));
    const Buffer buffer{.data = data.data(), .count = count, .dtype = dtype};
    rank.world->barrier().wait();
    const TimePoint begin = rank.waiter->now();
    rank.world->all_reduce(buffer, ReduceOp::Sum, {.algorithm = algorithm}).wait();
    if (rank.rank == 0) seconds = std::chrono::duration<double>(rank.waiter->now() - begin).count();
  });
  return seconds;
}

TEST(AllPairs, SixteenBitsOnTheWireTakeHalfTheTimeOfThirtyTwo) {
  const std::size_t count = 1 << 18;
  EXPECT_NEAR(seconds("all_pairs", DType::BF16, count) / seconds("all_pairs", DType::F32, count),
              0.5, 0.02);
  EXPECT_NEAR(seconds("all_pairs", DType::F16, count) / seconds("all_pairs", DType::F32, count),
              0.5, 0.02);
  EXPECT_GT(seconds("ring", DType::BF16, count) / seconds("ring", DType::F32, count), 0.55);
}

}  // namespace
}  // namespace trireme::comm
