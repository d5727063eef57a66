// Measured bytes per rank of each parallel.sync (PSS: pages shared by ranks count once), and the
// table of docs/numerics.md for it. The model is a stack of equal linear layers.
#pragma once

#include <gtest/gtest.h>
#include <malloc.h>

#include <cmath>
#include <cstdio>
#include <fstream>
#include <functional>
#include <map>
#include <sstream>

#include <torch/nn/modules/linear.h>

#include <ATen/Functions.h>

#include "trireme/job/job.h"
#include "trireme/job/job_input.h"
#include "trireme/kernel/assignment.h"
#include "trireme/models/module_block.h"
#include "trireme/strategy/strategy.h"
#include "trireme/testing/run_processes.h"

namespace trireme::numerics {

constexpr std::uint32_t kMemoryMicroBatches = 8;

struct MemoryShape {
  std::int64_t width = 512, blocks = 16;
  std::int64_t bucket_bytes() const { return width * width * 4; }  // one weight
  std::int64_t block_parameters() const { return width * width + width; }
};

// The number after `key` in `file`, converted from kB to bytes.
inline std::int64_t kilobytes(const char* file, const std::string& key) {
  std::ifstream in(file);
  std::string line;
  while (std::getline(in, line))
    if (line.starts_with(key)) return std::stoll(line.substr(key.size())) * 1024;
  throw std::runtime_error(std::string(file) + " has no " + key);
}

inline models::Blocks stack_of(const MemoryShape& shape) {
  models::Blocks model;
  for (std::int64_t i = 0; i < shape.blocks; ++i)
    model.add_block(
        {.name = "layer." + std::to_string(i),
         .make =
             [width = shape.width] {
               auto linear = torch::nn::Linear(width, width);
               return models::as_block(linear);
             },
         .reads = i == 0 ? std::vector<std::string>{"features"} : std::vector<std::string>{}});
  return model;
}

/// The state after two steps of AdamW. `mesh` gives the pipeline; the other options are set here.
inline std::unique_ptr<Strategy> train_stack(Job& job, const std::string& sync,
                                             const MemoryShape& shape, StrategyOptions mesh = {}) {
  mesh.sync = sync;
  mesh.bucket_bytes = shape.bucket_bytes();
  auto strategy =
      std::make_unique<Strategy>(job, stack_of(shape), mesh, AdamW{.learning_rate = 1e-3});
  const Loss loss = [](const models::Value& output, const MicroBatch&) {
    return output.at(0).pow(2).sum();
  };
  for (std::int64_t step = 0; step < 2; ++step) {
    Batch batch{.total = kMemoryMicroBatches, .global_count = kMemoryMicroBatches, .step = step};
    for (const std::uint32_t i :
         leaves_of(job.input().assignment(), kMemoryMicroBatches, job.rank()))
      batch.micro.push_back(
          {.index = i, .count = 1, .fields = {{"features", at::full({1, shape.width}, 0.01)}}});
    strategy->step(batch, loss);
  }
  return strategy;
}

/// fp32 weights, open sums and two moments: the table of docs/numerics.md without the bf16 copy.
inline double memory_formula(const std::string& sync, int ranks, const MemoryShape& shape) {
  const auto log = [](double count) { return std::max(1.0, std::ceil(std::log2(count))); };
  const double n = ranks, a = log(double(kMemoryMicroBatches) / n), all = log(kMemoryMicroBatches);
  const double parameters = double(shape.blocks * shape.block_parameters());
  if (ranks == 1 || sync == "plain") return parameters * (4 + 4 * a + 8);
  if (sync == "zero1") return parameters * (4 + 4 * a + 8 / n);
  if (sync == "zero2") return parameters * (4 + (4 * all + 8) / n);
  return parameters * (4 + 4 * all + 8) / n;
}

/// Without pages of files: LibTorch's are shared with whatever other programs run.
inline std::int64_t pss() {
  return kilobytes("/proc/self/smaps_rollup", "Pss_Anon:") +
         kilobytes("/proc/self/smaps_rollup", "Pss_Shmem:");
}
/// Bytes given out by malloc. If ranks share no pages, this does not depend on other programs.
inline std::int64_t allocated() {
  const struct mallinfo2 info = mallinfo2();
  return static_cast<std::int64_t>(info.uordblks + info.hblkhd);
}

/// Prints, for measure_memory(), by how much this process has grown after `train`.
inline void print_growth(Job& job, const std::string& name, std::int64_t (*bytes)(),
                         const std::function<std::unique_ptr<Strategy>()>& train) {
  malloc_trim(0);
  job.world().barrier().wait();
  const std::int64_t before = bytes();
  const auto strategy = train();
  malloc_trim(0);
  job.world().barrier().wait();
  const std::int64_t after = bytes();
  job.world().barrier().wait();
  std::printf("MEMORY %s %lld\n", name.c_str(), static_cast<long long>(after - before));
}

/// The body of a rank process of measure_memory().
inline int print_memory(Job& job, const MemoryShape& shape) {
  const MemoryShape small{shape.width, 2};  // kernels, workspaces, connections
  train_stack(job, "zero3", small).reset();
  train_stack(job, "plain", small).reset();
  for (const char* sync : {"plain", "zero1", "zero2", "zero3"})
    print_growth(job, sync, pss, [&] { return train_stack(job, sync, shape); });
  return 0;
}

/// parallel.sync (or another name that the body prints) -> mean bytes over `ranks` ranks.
inline std::map<std::string, double> measure_memory(int ranks, std::chrono::seconds limit,
                                                    const char* body = "measure") {
  const testing::ProcessRun run =
      testing::run_processes(ranks, body, {.time_limit = limit, .transport = "shm"});
  EXPECT_EQ(run.exit_code, 0) << run.describe();
  std::map<std::string, double> mean;
  for (const testing::ProcessOutcome& rank : run.ranks) {
    std::istringstream lines(rank.out);
    std::string word, sync;
    double bytes = 0;
    while (lines >> word >> sync >> bytes) mean[sync] += bytes / ranks;
  }
  EXPECT_GE(mean.size(), 3u) << run.describe();
  return mean;
}

}  // namespace trireme::numerics
