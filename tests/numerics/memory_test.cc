// Bytes per rank of every parallel.sync against docs/numerics.md, on a model so small that buffers
// in transit are visible (memory_large_test.cc has one where they are not); and a model that only
// ZeRO-3 can train under a memory limit.
#include "tests/numerics/memory.h"

#include <sys/resource.h>

#include "trireme/plan/training_plan.h"

namespace trireme {
namespace {

// Large beside what the runtime keeps between two trainings, which varies by 2 MB a rank.
constexpr numerics::MemoryShape kShape{512, 32};

// Memory beyond the formula: buckets being filled, sent and received at a time, and two blocks.
double moving(const std::string& sync, int ranks) {
  if (ranks == 1 || sync == "plain") return 0;
  const double bucket = double(kShape.block_parameters()) * 4;
  if (sync == "zero1") return 4 * bucket;
  return 8 * bucket + (sync == "zero3" ? 2 * bucket : 0);
}

TRIREME_PROCESS(measure) {
  Job job(argc, argv);
  return numerics::print_memory(job, kShape);
}

void measure_on(int ranks) {
  for (const auto& [sync, bytes] : numerics::measure_memory(ranks, std::chrono::seconds(200))) {
    const double wanted = numerics::memory_formula(sync, ranks, kShape);
    std::printf(
        "%d ranks, %s: %.1f MB a rank, by the formula %.1f MB, on the move at most %.1f MB\n",
        ranks, sync.c_str(), bytes / 1e6, wanted / 1e6, moving(sync, ranks) / 1e6);
    EXPECT_GE(bytes, 0.97 * wanted) << sync << " on " << ranks << " ranks";
    EXPECT_LE(bytes, 1.03 * wanted + moving(sync, ranks) + 2e6) << sync << " on " << ranks;
  }
}

TEST(Memory, OfOneRankIsTheFormulas) { measure_on(1); }
TEST(Memory, OfTwoRanksIsTheFormulas) { measure_on(2); }
TEST(Memory, OfFourRanksIsTheFormulas) { measure_on(4); }

// Zero3 in a pipeline, against the plan's numbers.
const std::vector<std::string> kSchedules = {"1f1b", "zb-h1", "interleaved-1f1b", "zb-v"};
TRIREME_PROCESS(measure_pipeline) {
  Job job(argc, argv);
  const auto train = [&](const std::string& schedule, const numerics::MemoryShape& shape) {
    return numerics::train_stack(job, "zero3", shape, {.pipeline = 2, .schedule = schedule});
  };
  for (const std::string& schedule : kSchedules) train(schedule, {kShape.width, 4}).reset();
  for (const std::string& schedule : kSchedules)
    numerics::print_growth(job, schedule, numerics::allocated,
                           [&] { return train(schedule, kShape); });
  return 0;
}

TEST(Memory, OfZero3InAPipelineIsThePlans) {
  const auto measured = numerics::measure_memory(4, std::chrono::seconds(200), "measure_pipeline");
  ASSERT_EQ(measured.size(), kSchedules.size());
  for (const auto& [schedule, bytes] : measured) {
    plan::PlannedJob job{.name = "stack",
                         .parameters = kShape.blocks * kShape.block_parameters(),
                         .batch = numerics::kMemoryMicroBatches,
                         .micro = 1,
                         .steps = 2,
                         .owners = 2,
                         .shards_gradients = true,
                         .shards_weights = true,
                         .largest_blocks = 2 * kShape.block_parameters(),
                         .pipeline = 2,
                         .schedule = schedule,
                         .ranks = 4,
                         .transport = "shm",
                         .algorithm = "auto",
                         .bucket_bytes = kShape.bucket_bytes()};
    const plan::Memory memory = plan::make_plan(job).memory;
    const auto state = static_cast<double>(memory.weights + memory.gradients + memory.optimizer);
    const auto moving = static_cast<double>(memory.moving);
    std::printf("%s: %.1f MB a rank, planned %.1f MB and at most %.1f MB on the move\n",
                schedule.c_str(), bytes / 1e6, state / 1e6, moving / 1e6);
    EXPECT_DOUBLE_EQ(state, numerics::memory_formula("zero3", 4, kShape));
    EXPECT_GE(bytes, 0.97 * state) << schedule;
    EXPECT_LE(bytes, 1.03 * state + moving + 2e6) << schedule;
  }
}

// Every rank's whole state is 12 bytes a parameter, 101 MB, beside gradients; a quarter of all
// state with the open sums is 50 MB.
TRIREME_PROCESS(limited) {
  Job job(argc, argv);
  numerics::train_stack(job, "zero3", {kShape.width, 2}).reset();
  malloc_trim(0);
  const auto data = static_cast<rlim_t>(numerics::kilobytes("/proc/self/status", "VmData:"));
  const rlimit limit{data + 95'000'000, RLIM_INFINITY};
  if (setrlimit(RLIMIT_DATA, &limit) != 0) return 3;
  const auto strategy = numerics::train_stack(job, argv[1], kShape);
  std::printf("trained %lld parameters\n", static_cast<long long>(strategy->num_parameters()));
  job.world().barrier().wait();
  return 0;
}

testing::ProcessRun run_limited(const char* sync) {
  testing::ProcessOptions options{.time_limit = std::chrono::seconds(100), .transport = "shm"};
  options.arguments = {sync};
  return testing::run_processes(4, "limited", options);
}

TEST(Memory, Zero3TrainsWhatDoesNotFitOtherwise) {
  const testing::ProcessRun sharded = run_limited("zero3");
  EXPECT_EQ(sharded.exit_code, 0) << sharded.describe();
  const testing::ProcessRun plain = run_limited("plain");
  EXPECT_NE(plain.exit_code, 0) << "the limit is too wide to show anything";
  EXPECT_NE(plain.describe().find("alloc"), std::string::npos) << plain.describe();
}

}  // namespace
}  // namespace trireme
