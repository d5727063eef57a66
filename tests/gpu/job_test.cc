// Jobs with transport nccl in real processes: which rank uses which GPU, and refusals.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <map>

#include "trireme/comm/nccl/gpu_library.h"
#include "trireme/job.h"
#include "trireme/launch/launch.h"
#include "trireme/testing/run_processes.h"

namespace trireme {
namespace {

using ::testing::HasSubstr;
using testing::run_processes;

TRIREME_PROCESS(on_gpus) {
  Job job(argc, argv);
  if (job.device().kind != DeviceKind::Cuda || job.device().index != job.local_rank()) return 3;
  std::vector<double> values(1000, job.rank());  // CPU memory takes the CPU transport
  all_reduce(job.world(), values, Sum);
  if (values != std::vector<double>(1000, job.size() * (job.size() - 1) / 2)) return 4;
  const comm::Arena arena = job.world().allocate(400, job.device());
  if (arena.buffer(0, 100, DType::F32).device != job.device()) return 5;
  return 0;
}

TRIREME_PROCESS(on_gpus_with_servers) {
  Job job(argc, argv);
  std::printf("on GPU: %d\n", job.device().kind == DeviceKind::Cuda);
  if (job.role() == Role::Server)
    job.waiter()->wait_until([&] { return job.finished(); }, TimePoint::max());
  return 0;
}

// As the launcher starts a worker in the place of another, which meets nobody.
TRIREME_PROCESS(on_gpus_later) {
  setenv("TRIREME_RESTARTS", "1", 1);
  Job job(argc, argv);
  return job.joined_later() && job.device() == Device{DeviceKind::Cuda, job.rank()} ? 0 : 3;
}

// A program may use the GPU before it makes a Strategy.
TRIREME_PROCESS(fixes_cublas_order) {
  unsetenv(comm::nccl::kCublasOrder);
  Job job(argc, argv);
  return std::getenv(comm::nccl::kCublasOrder) != nullptr ? 0 : 3;
}

testing::ProcessOptions with(const std::string& driver, int gpus) {
  return {.transport = "nccl",
          .environment = {"TRIREME_CUDA_LIBRARY=" + driver,
                          "TRIREME_NCCL_LIBRARY=" + std::string(TRIREME_FAKE_GPU),
                          "TRIREME_FAKE_GPUS=" + std::to_string(gpus)}};
}

TEST(GpuJob, EveryRankHasItsGpu) {
  for (const int ranks : {1, 2, 3}) {
    const auto run = run_processes(ranks, "on_gpus", with(TRIREME_FAKE_GPU, 3));
    EXPECT_EQ(run.exit_code, 0) << run.describe();
  }
}

TEST(GpuJob, CublasAddsUpInOneOrderFromTheStart) {
  const auto run = run_processes(1, "fixes_cublas_order", with(TRIREME_FAKE_GPU, 1));
  EXPECT_EQ(run.exit_code, 0) << run.describe();
}

TEST(GpuJob, ServersTakeNoGpu) {
  constexpr int kWorkers = 2, kServers = 3;
  auto how = with(TRIREME_FAKE_GPU, 2);
  how.algorithm = "nccl-native";
  auto options = testing::process_launch_options(kWorkers, "on_gpus_with_servers", how);
  options.servers = kServers;
  options.handle_signals = false;
  std::map<int, std::string> lines;
  options.on_line = [&](int process, bool, std::string_view line) { lines[process] += line; };
  const launch::LaunchResult result = launch::launch(options);
  EXPECT_EQ(result.exit_code, 0) << result.last_line;
  for (int process = 0; process < kWorkers + kServers; ++process)
    EXPECT_EQ(lines[process], process < kWorkers ? "on GPU: 1" : "on GPU: 0") << process;
}

TEST(GpuJob, WorkersThatComeLaterHaveTheirOwn) {
  const auto run = run_processes(3, "on_gpus_later", with(TRIREME_FAKE_GPU, 3));
  EXPECT_EQ(run.exit_code, 0) << run.describe();
}

TEST(GpuJob, MoreRanksThanGpusAreRefusedWithTheArithmetic) {
  const auto run = run_processes(3, "on_gpus", with(TRIREME_FAKE_GPU, 2));
  EXPECT_EQ(run.exit_code, 2) << run.describe();
  EXPECT_THAT(run.last_line, HasSubstr("for 2 GPUs (3 > 2)")) << run.describe();
}

TEST(GpuJob, WithoutADriverItIsRefusedAndSaysWhatToDo) {
  const auto run = run_processes(2, "on_gpus", with("/nowhere/libcuda.so.1", 2));
  EXPECT_EQ(run.exit_code, 2) << run.describe();
  EXPECT_THAT(run.last_line, HasSubstr("no CUDA driver"));
  EXPECT_THAT(run.last_line, HasSubstr("comm.transport auto"));
}

TEST(GpuJob, WithoutNcclItIsRefusedAndSaysWhatToDo) {
  auto options = with(TRIREME_FAKE_GPU, 2);
  options.environment[1] = "TRIREME_NCCL_LIBRARY=/nowhere/libnccl.so.2";
  const auto run = run_processes(2, "on_gpus", options);
  EXPECT_EQ(run.exit_code, 2) << run.describe();
  EXPECT_THAT(run.last_line, HasSubstr("no NCCL"));
  EXPECT_THAT(run.last_line, HasSubstr("TRIREME_NCCL_LIBRARY"));
}

TEST(GpuJob, WithoutAGpuItIsRefused) {
  const auto run = run_processes(1, "on_gpus", with(TRIREME_FAKE_GPU, 0));
  EXPECT_EQ(run.exit_code, 2) << run.describe();
  EXPECT_THAT(run.last_line, HasSubstr("no GPU is visible"));
}

}  // namespace
}  // namespace trireme
