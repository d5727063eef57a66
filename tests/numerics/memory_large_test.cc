// Bytes per rank within 3 % of the table in docs/numerics.md, for a model that is large against a
// bucket and a block: 67 million parameters in 1,024 blocks. Besides its numbers a block has
// objects (a module, leaves, their hooks, names and tables): 16 to 18 kB measured.
#include "tests/numerics/memory.h"

namespace trireme {
namespace {

constexpr numerics::MemoryShape kShape{256, 1024};

TRIREME_PROCESS(measure) {
  Job job(argc, argv);
  return numerics::print_memory(job, kShape);
}

class LargeModel : public ::testing::TestWithParam<int> {};

constexpr double kObjects = 20e3 * double(kShape.blocks);

TEST_P(LargeModel, IsWithinThreePercentOfTheFormulas) {
  const int ranks = GetParam();
  for (const auto& [sync, bytes] : numerics::measure_memory(ranks, std::chrono::seconds(800))) {
    const double wanted = numerics::memory_formula(sync, ranks, kShape);
    std::printf("%d ranks, %s: %.1f MB a rank, by the formula %.1f MB: %+.1f %%\n", ranks,
                sync.c_str(), bytes / 1e6, wanted / 1e6, 100 * (bytes / wanted - 1));
    EXPECT_GE(bytes, 0.97 * wanted) << sync << " on " << ranks << " ranks";
    EXPECT_LE(bytes, 1.03 * wanted + kObjects) << sync << " on " << ranks << " ranks";
  }
}

INSTANTIATE_TEST_SUITE_P(Ranks, LargeModel, ::testing::Values(1, 2, 4, 8));

}  // namespace
}  // namespace trireme
