#include <gtest/gtest.h>

#include <memory>
#include <utility>
#include <vector>

#include "trireme/comm/collectives.h"
#include "trireme/comm/rounds/registry.h"
#include "trireme/comm/simulate.h"
#include "trireme/plan/tuning.h"

namespace trireme::comm {
namespace {

// Measured on the virtual clock of a link without latency, so time is proportional to bytes.
template <class Call>
double seconds_of(int ranks, const Call& call) {
  double seconds = 0;
  SimulationOptions options;
  options.network.alpha = {};
  options.network.jitter = {};
  options.network.bytes_per_second = 1e9;
  options.network.shared_memory = false;
  // Measured times with which the ring is faster, unless partial sums are wide.
  auto tuning = std::make_shared<plan::Tuning>();
  tuning->links["sim"] = {0, 1e-9, 0};
  for (const auto& [name, time] : {std::pair("ring", 2e-3), {"all_pairs", 2.1e-3}}) {
    tuning->add({"all_reduce", name, "sim", ranks, std::size_t{1} << 21, time});
  }
  options.world.tuning = tuning;
  simulate(ranks, options, [&](SimulatedRank& rank) {
    rank.world->barrier().wait();
    const TimePoint begin = rank.waiter->now();
    call(*rank.world);
    if (rank.rank == 0) seconds = to_seconds(rank.waiter->now() - begin);
  });
  return seconds;
}

double seconds(const char* algorithm, DType dtype, std::size_t count) {
  return seconds_of(4, [&](Communicator& world) {
    std::vector<std::byte> data(count * size_of(dtype));
    const Buffer buffer{.data = data.data(), .count = count, .dtype = dtype};
    world.all_reduce(buffer, ReduceOp::Sum, {.algorithm = algorithm}).wait();
  });
}

double seconds_of_many(const char* algorithm) {
  const std::size_t count = 1 << 20;
  return seconds_of(8, [&](Communicator& world) {
    std::vector<std::uint16_t> data(count);
    const Buffer buffer{.data = data.data(), .count = count, .dtype = DType::BF16};
    const Buffer halves[] = {buffer.slice(0, count / 2), buffer.slice(count / 2, count / 2)};
    world.all_reduce_many(halves, ReduceOp::Sum, {.algorithm = algorithm}).wait();
  });
}

double seconds_of_rows(const char* algorithm) {
  const std::size_t count = 1 << 20;
  return seconds_of(8, [&](Communicator& world) {
    SparseRows rows{.width = count, .num_rows = 1, .dtype = DType::BF16}, sum;
    rows.indices = {0};
    rows.values.resize(2 * count);
    world
        .sparse_all_reduce(rows, sum, ReduceOp::Sum,
                           {.op = {.algorithm = algorithm}, .way = SparseWay::Dense})
        .wait();
  });
}

TEST(AllPairs, SixteenBitsOnTheWireTakeHalfTheTimeOfThirtyTwo) {
  const std::size_t count = 1 << 18;
  EXPECT_NEAR(seconds("all_pairs", DType::BF16, count) / seconds("all_pairs", DType::F32, count),
              0.5, 0.02);
  EXPECT_NEAR(seconds("all_pairs", DType::F16, count) / seconds("all_pairs", DType::F32, count),
              0.5, 0.02);
  EXPECT_GT(seconds("ring", DType::BF16, count) / seconds("ring", DType::F32, count), 0.55);
}

// With "auto", these calls choose an algorithm without partial sums, as a plain all_reduce does.
TEST(AllPairs, FusedAndSparseSumsOfSixteenBitsStaySo) {
  EXPECT_NEAR(seconds_of_many("auto") / seconds_of_many("all_pairs"), 1, 0.01);
  EXPECT_NEAR(seconds_of_rows("auto") / seconds_of_rows("all_pairs"), 1, 0.01);
}

}  // namespace
}  // namespace trireme::comm
