// A DataParallel at the end of its Job, in the wrong order and in a child of fork().
#include <ATen/Functions.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>
#include <unistd.h>

#include <memory>
#include <string>

#include "trireme/job/job.h"
#include "trireme/strategy/data_parallel.h"
#include "trireme/testing/run_processes.h"

namespace trireme::job_end_test {
namespace {

struct Training {
  Training(int argc, char** argv, const std::string& sync)
      : job(std::make_unique<Job>(argc, argv)),
        parallel(
            std::make_unique<DataParallel>(*job, *net, sgd, DataParallelOptions{.sync = sync})) {}
  void step() {
    net->forward(at::ones({4, 3})).pow(2).mean().backward();
    parallel->step();
  }
  torch::nn::Linear net{3, 2};
  torch::optim::SGD sgd{net->parameters(), 0.1};
  std::unique_ptr<Job> job;
  std::unique_ptr<DataParallel> parallel;
};

TRIREME_PROCESS(job_ends_first) {
  Training training(argc, argv, "plain");
  training.step();
  training.job.reset();
  return 0;
}

TEST(JobEnd, BeforeTheTrainingIsRefusedWithASentence) {
  const auto run = testing::run_processes(2, "job_ends_first");
  EXPECT_EQ(run.exit_code, 2) << run.describe();
  EXPECT_THAT(run.ranks[0].err, ::testing::HasSubstr("the Job ends before a DataParallel"))
      << run.describe();
}

TRIREME_PROCESS(forks) {  // argv[1]: sync
  bool in_child = false;
  {
    Training training(argc, argv, argv[1]);
    training.step();
    const pid_t child = training.job->rank() == 0 ? fork() : -1;
    in_child = child == 0;
    int status = 0;
    if (child > 0 && (waitpid(child, &status, 0) != child || WEXITSTATUS(status) != 7)) return 3;
    if (!in_child) training.step();
  }
  if (in_child) _exit(7);
  return 0;
}

TEST(JobEnd, InAChildOfForkLeavesTheRankAlone) {
  for (const char* sync : {"plain", "zero1"}) {
    const auto run = testing::run_processes(2, "forks", {.arguments = {sync}});
    EXPECT_EQ(run.exit_code, 0) << sync << "\n" << run.describe();
  }
}

}  // namespace
}  // namespace trireme::job_end_test
