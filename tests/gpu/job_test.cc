// Jobs with transport nccl in real processes: which rank uses which GPU, and refusals.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "trireme/job.h"
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
