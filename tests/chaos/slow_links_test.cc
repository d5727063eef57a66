// Links so slow that a message takes several timeouts: both its sender and ranks that wait for it
// continue, because `timeout` bounds silence. Real sockets, at a rate that the kernel limits.
#include <gtest/gtest.h>

#include <vector>

#include "trireme/job.h"
#include "trireme/testing/run_processes.h"

namespace trireme {
namespace {

using std::chrono::seconds;
using testing::ProcessOptions;
using testing::ProcessRun;
using testing::run_processes;

constexpr std::size_t kCount = 360'000;  // 1.44 MB: 9.6 s at this rate
constexpr const char* kRate = "TRIREME_COMM_RATE=150000";

ProcessOptions slow() {
  ProcessOptions options;
  options.timeout = seconds(3);
  options.time_limit = seconds(90);
  options.transport = "tcp";
  options.environment = {kRate};
  return options;
}

// Rank 0 is done when the kernel has its bytes; after that only rank 1 sees progress.
TRIREME_PROCESS(one_message) {
  Job job(argc, argv);
  std::vector<float> x(kCount, static_cast<float>(job.rank() + 1));
  if (job.rank() == 0) job.world().send(buffer_of(x), 1).wait();
  if (job.rank() == 1) job.world().recv(buffer_of(x), 0).wait();
  barrier(job.world());
  return job.rank() < 2 && x != std::vector<float>(kCount, 1.0f) ? 4 : 0;
}

TEST(SlowLinks, OneMessageIsWaitedForByAllWhileItMoves) {
  const ProcessRun run = run_processes(3, "one_message", slow());
  EXPECT_EQ(run.exit_code, 0) << run.describe();
  EXPECT_GT(run.took, seconds(6)) << "the link was not slow";
}

TRIREME_PROCESS(many_small) {
  Job job(argc, argv);
  std::vector<float> x(4'000);  // each is sent at once if there is room
  const int peer = 1 - job.rank();
  std::vector<Work> works;
  for (int i = 0; i < 60; ++i) {
    if (job.rank() == 0) works.push_back(job.world().send(buffer_of(x), peer));
    if (job.rank() == 1) works.push_back(job.world().recv(buffer_of(x), peer));
  }
  works.back().wait();
  Work::all(works).wait();
  barrier(job.world());
  return 0;
}

TEST(SlowLinks, ManySmallMessagesAreWaitedForWhileTheyMove) {
  const ProcessRun run = run_processes(2, "many_small", slow());
  EXPECT_EQ(run.exit_code, 0) << run.describe();
}

}  // namespace
}  // namespace trireme
