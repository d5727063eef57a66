// Bytes per rank of every parallel.sync, measured (PSS: pages that ranks share count once) against
// NUMERICS.md; and a model that only ZeRO-3 trains under a limit of memory.
#include <gtest/gtest.h>
#include <malloc.h>
#include <sys/resource.h>

#include <cmath>
#include <cstdio>
#include <fstream>
#include <sstream>

#include <torch/nn/modules/linear.h>

#include <ATen/Functions.h>

#include "trireme/job/job.h"
#include "trireme/models/module_block.h"
#include "trireme/parallel/seat.h"
#include "trireme/parallel/strategy.h"
#include "trireme/testing/run_processes.h"

namespace trireme {
namespace {

constexpr std::int64_t kWidth = 512, kBlocks = 16;
constexpr std::uint32_t kMicroBatches = 8;
constexpr std::int64_t kBlockParameters = kWidth * kWidth + kWidth;
constexpr std::int64_t kBucketBytes = 1 << 20;

// The number in `file` after `key`, in bytes; the file counts kB.
std::int64_t kilobytes(const char* file, const std::string& key) {
  std::ifstream in(file);
  std::string line;
  while (std::getline(in, line))
    if (line.starts_with(key)) return std::stoll(line.substr(key.size())) * 1024;
  throw std::runtime_error(std::string(file) + " has no " + key);
}
std::int64_t pss() { return kilobytes("/proc/self/smaps_rollup", "Pss:"); }

models::Blocks stack(std::int64_t blocks) {
  models::Blocks model;
  for (std::int64_t i = 0; i < blocks; ++i)
    model.add_block(
        {.name = "layer." + std::to_string(i),
         .make =
             [] {
               auto linear = torch::nn::Linear(kWidth, kWidth);
               return models::as_block(linear);
             },
         .reads = i == 0 ? std::vector<std::string>{"features"} : std::vector<std::string>{}});
  return model;
}

Batch batch_of(std::int64_t step, const Job& job) {
  Batch batch{.total = kMicroBatches, .global_count = kMicroBatches, .step = step};
  for (const std::uint32_t i : leaves_of(job.assignment(), kMicroBatches, job.rank()))
    batch.micro.push_back(
        {.index = i, .count = 1, .fields = {{"features", at::full({1, kWidth}, 0.01)}}});
  return batch;
}

std::unique_ptr<Strategy> train(Job& job, const std::string& sync, std::int64_t blocks) {
  auto strategy = std::make_unique<Strategy>(
      job, stack(blocks), StrategyOptions{.sync = sync, .bucket_bytes = kBucketBytes},
      AdamW{.learning_rate = 1e-3});
  const Loss loss = [](const models::Value& output, const MicroBatch&) {
    return output.at(0).pow(2).sum();
  };
  for (std::int64_t step = 0; step < 2; ++step) strategy->step(batch_of(step, job), loss);
  return strategy;
}

// Weights, open sums and two moments of fp32, as NUMERICS.md's table without the bf16 copy.
double formula(const std::string& sync, int ranks) {
  const auto log = [](double count) { return std::max(1.0, std::ceil(std::log2(count))); };
  const double n = ranks, a = log(double(kMicroBatches) / n), all = log(kMicroBatches);
  const double parameters = double(kBlocks * kBlockParameters);
  if (ranks == 1 || sync == "plain") return parameters * (4 + 4 * a + 8);
  if (sync == "zero1") return parameters * (4 + 4 * a + 8 / n);
  if (sync == "zero2") return parameters * (4 + (4 * all + 8) / n);
  return parameters * (4 + 4 * all + 8) / n;
}

// What is kept beside it: buckets that were filled, sent and received at a time, and two blocks.
double moving(const std::string& sync, int ranks) {
  if (ranks == 1 || sync == "plain") return 0;
  const double bucket = double(kBlockParameters) * 4;
  if (sync == "zero1") return 4 * bucket;
  return 8 * bucket + (sync == "zero3" ? 2 * bucket : 0);
}

TRIREME_PROCESS(measure) {
  Job job(argc, argv);
  train(job, "zero3", 2).reset();  // kernels, workspaces, connections
  train(job, "plain", 2).reset();
  for (const char* sync : {"plain", "zero1", "zero2", "zero3"}) {
    malloc_trim(0);
    job.world().barrier().wait();
    const std::int64_t before = pss();
    const auto strategy = train(job, sync, kBlocks);
    malloc_trim(0);
    job.world().barrier().wait();
    const std::int64_t after = pss();
    job.world().barrier().wait();
    std::printf("MEMORY %s %lld\n", sync, static_cast<long long>(after - before));
  }
  return 0;
}

void measure_on(int ranks) {
  const testing::ProcessRun run = testing::run_processes(
      ranks, "measure", {.time_limit = std::chrono::seconds(200), .transport = "shm"});
  ASSERT_EQ(run.exit_code, 0) << run.describe();
  std::map<std::string, double> mean;
  for (const testing::ProcessOutcome& rank : run.ranks) {
    std::istringstream lines(rank.out);
    std::string word, sync;
    double bytes = 0;
    while (lines >> word >> sync >> bytes) mean[sync] += bytes / ranks;
  }
  for (const auto& [sync, bytes] : mean) {
    const double wanted = formula(sync, ranks);
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

// 12 bytes a parameter of weights and moments are 50 MB; a quarter of all state with the open sums
// is 25 MB.
TRIREME_PROCESS(limited) {
  Job job(argc, argv);
  train(job, "zero3", 2).reset();
  malloc_trim(0);
  const auto data = static_cast<rlim_t>(kilobytes("/proc/self/status", "VmData:"));
  const rlimit limit{data + 46'000'000, RLIM_INFINITY};
  if (setrlimit(RLIMIT_DATA, &limit) != 0) return 3;
  const auto strategy = train(job, argv[1], kBlocks);
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
