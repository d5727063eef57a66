// Ranks that train their own copies (parallel.sync = local_sgd and its relatives), as real
// processes: the same bits over every transport, and the end of the job if one rank is killed.
#include <gtest/gtest.h>
#include <signal.h>

#include <ATen/Functions.h>

#include <sstream>
#include <tuple>

#include "trireme/job/job.h"
#include "trireme/job/job_input.h"
#include "trireme/kernel/assignment.h"
#include "trireme/models/models.h"
#include "trireme/strategy/strategy.h"
#include "trireme/tensor/random.h"
#include "trireme/testing/run_processes.h"

namespace trireme {
namespace {

using testing::ProcessOptions;
using testing::ProcessRun;
using testing::run_processes;
using testing::RunningProcesses;

constexpr std::uint32_t kMicroBatches = 7;

Batch batch_of(std::int64_t step, const Job& job) {
  Batch batch{.total = kMicroBatches, .global_count = kMicroBatches, .step = step};
  for (const std::uint32_t i : leaves_of(job.input().assignment(), kMicroBatches, job.rank())) {
    at::Tensor noise = at::empty({1, 12}, at::kFloat);
    tensor::fill_normal(noise, 3, std::to_string(step % 4) + "/" + std::to_string(i), 0, 1);
    batch.micro.push_back({.index = i, .count = 1, .fields = {{"features", noise}}});
  }
  return batch;
}

// argv: parallel.sync, steps (0: without end; prints a line after a few), lanes.
TRIREME_PROCESS(train_relatives) {
  Job job(argc, argv);
  Strategy strategy(
      job, models::make_mlp({.widths = {12, 64, 5}}),
      StrategyOptions{
          .sync = argv[1], .clip = 1, .lanes = std::stoi(argv[3]), .local = {.steps = 3}},
      AdamW{.learning_rate = 1e-2});
  const Loss loss = [](const models::Value& output, const MicroBatch& micro) {
    return (output.at(0) - micro.field("features").narrow(1, 0, 5).sin()).pow(2).sum();
  };
  const long steps = std::stol(argv[2]);
  for (std::int64_t step = 0; steps == 0 || step < steps; ++step) {
    const StepResult result = strategy.step(batch_of(step, job), loss);
    if (steps > 0) std::printf("LOSS %a\n", result.loss);
    if (steps == 0 && step == 20) {
      std::printf("running\n");
      std::fflush(stdout);
    }
  }
  std::printf("HASH %s\n", strategy.weights_hash().c_str());
  return 0;
}

class RelativesAsProcesses : public ::testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Every, RelativesAsProcesses,
                         ::testing::Values("local_sgd", "diloco", "easgd", "gossip"));

std::string result_of(const ProcessRun& run, std::size_t rank) {
  std::istringstream lines(run.ranks.at(rank).out);
  std::string result;
  for (std::string line; std::getline(lines, line);)
    if (line.starts_with("LOSS") || line.starts_with("HASH")) result += line + "\n";
  return result;
}

TEST_P(RelativesAsProcesses, GiveTheSameBitsOverEveryTransportAndAlgorithmAndInLanes) {
  std::string expected;
  for (const auto& [transport, algorithm, lanes] :
       {std::tuple{"shm", "auto", "1"}, {"tcp", "auto", "1"}, {"tcp", "ring", "2"}}) {
    const ProcessRun run = run_processes(
        3, "train_relatives",
        {.transport = transport, .algorithm = algorithm, .arguments = {GetParam(), "8", lanes}});
    ASSERT_EQ(run.exit_code, 0) << run.describe();
    if (expected.empty()) expected = result_of(run, 0);
    EXPECT_NE(expected.find("HASH "), std::string::npos) << run.describe();
    for (std::size_t rank = 0; rank < 3; ++rank)
      EXPECT_EQ(result_of(run, rank), expected) << transport << "\n" << run.describe();
  }
}

TEST_P(RelativesAsProcesses, AKilledRankEndsTheJob) {
  for (const char* transport : {"shm", "tcp"}) {
    ProcessOptions options{.transport = transport, .arguments = {GetParam(), "0", "1"}};
    options.on_line = [&](int rank, std::string_view line, const RunningProcesses& running) {
      if (rank == 1 && line == "running") testing::send_signal(running.pids[1], SIGKILL);
    };
    const ProcessRun run = run_processes(3, "train_relatives", options);
    EXPECT_EQ(run.exit_code, 137) << run.describe();
    EXPECT_EQ(run.last_line.find("rank 1 on host "), 0u) << run.describe();
    for (const std::size_t survivor : {0u, 2u}) {
      EXPECT_EQ(run.ranks[survivor].exit_code, 160) << run.describe();
      EXPECT_NE(run.ranks[survivor].err.find("rank 1"), std::string::npos) << run.describe();
    }
  }
}

}  // namespace
}  // namespace trireme
