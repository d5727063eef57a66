// A DataParallel at the end of its Job, in the wrong order and in a child of fork().
#include <ATen/Context.h>
#include <ATen/Functions.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>
#include <unistd.h>

#include <cstdio>
#include <memory>
#include <set>
#include <stdexcept>
#include <string>

#include "trireme/job/job.h"
#include "trireme/ps/server/serve.h"
#include "trireme/strategy/data_parallel.h"
#include "trireme/testing/run_processes.h"

namespace trireme::job_end_test {
namespace {

struct Training {
  Training(std::unique_ptr<Job> own_job, const std::string& sync)
      : job(std::move(own_job)),
        parallel(
            std::make_unique<DataParallel>(*job, *net, sgd, DataParallelOptions{.sync = sync})) {}
  void step() {
    net->forward(at::full({4, 3}, job->rank() + 1.0)).pow(2).mean().backward();
    parallel->step();
  }
  torch::nn::Linear net{3, 2};
  torch::optim::SGD sgd{net->parameters(), 0.1};
  std::unique_ptr<Job> job;
  std::unique_ptr<DataParallel> parallel;
};

struct Ended {
  launch::LaunchResult result;
  std::string lines;  // of all processes
};

// With a server if `sync` needs one.
Ended run(const char* body, const std::string& sync, const std::string& how = {}) {
  Ended run;
  launch::LaunchOptions options =
      testing::process_launch_options(2, body,
                                      {.environment = {"MALLOC_PERTURB_=165"},
                                       .arguments = {sync, how}});  // overwrites what is freed
  options.servers = sync == "server" ? 1 : 0;
  options.handle_signals = false;
  options.on_line = [&](int, bool, std::string_view line) { run.lines.append(line).append("\n"); };
  run.result = launch::launch(options);
  return run;
}

TRIREME_PROCESS(job_ends_first) {
  Training training(std::make_unique<Job>(argc, argv), "plain");
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

int throw_past(int argc, char** argv) {
  torch::nn::Linear net{3, 2};
  torch::optim::SGD sgd{net->parameters(), 0.1};
  std::unique_ptr<DataParallel> parallel;
  Job job(argc, argv);
  if (job.role() == Role::Server) return serve(job);
  parallel = std::make_unique<DataParallel>(job, *net, sgd, DataParallelOptions{.sync = argv[1]});
  net->forward(at::ones({4, 3})).pow(2).mean().backward();
  parallel->step();
  throw std::out_of_range("no such sample");
}

TRIREME_PROCESS(throws_past_a_job_that_ends_first) {
  try {
    return throw_past(argc, argv);
  } catch (const std::out_of_range& error) {
    std::puts(error.what());
    return 20;
  }
}

TEST(JobEnd, BeforeTheTrainingLeavesAnExceptionItsSentence) {
  for (const char* sync : {"plain", "zero1", "server"}) {
    const Ended one = run("throws_past_a_job_that_ends_first", sync);
    EXPECT_EQ(one.result.exit_code, 20) << sync << "\n" << one.result.last_line << one.lines;
    EXPECT_THAT(one.lines, ::testing::HasSubstr("no such sample")) << sync;
  }
}

TRIREME_PROCESS(forks) {  // argv[1]: sync; argv[2]: "forks", or not
  bool in_child = false;
  at::manual_seed(1);
  {
    auto job = std::make_unique<Job>(argc, argv);
    if (job->role() == Role::Server) return serve(*job);
    Training training(std::move(job), argv[1]);
    training.step();
    const bool forks = training.job->rank() == 0 && argv[2] == std::string("forks");
    const pid_t child = forks ? fork() : -1;
    in_child = child == 0;
    int status = 0;
    if (child > 0 && (waitpid(child, &status, 0) != child || WEXITSTATUS(status) != 7)) return 3;
    if (!in_child) training.step();
    if (!in_child) std::printf("weights %s\n", training.parallel->weights_hash().c_str());
  }
  if (in_child) _exit(7);
  return 0;
}

TEST(JobEnd, InAChildOfForkLeavesTheRankAlone) {
  for (const char* sync : {"plain", "zero1", "server"}) {
    std::set<std::string> weights;
    for (const char* how : {"forks", "does not"}) {
      const Ended one = run("forks", sync, how);
      EXPECT_EQ(one.result.exit_code, 0) << sync << "\n" << one.result.last_line << one.lines;
      const std::size_t at = one.lines.find("weights ");
      ASSERT_NE(at, std::string::npos) << sync << "\n" << one.lines;
      weights.insert(one.lines.substr(at, one.lines.find('\n', at) - at));
    }
    EXPECT_THAT(weights, ::testing::SizeIs(1)) << sync << ": a step lacks a rank's gradients";
  }
}

}  // namespace
}  // namespace trireme::job_end_test
