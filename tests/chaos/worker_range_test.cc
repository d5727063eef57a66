// Workers that train on their own while the user wants more of them, or fewer, or one is killed.
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <map>

#include "trireme/base/event.h"
#include "trireme/job.h"
#include "trireme/job/job_servers.h"
#include "trireme/launch/launch.h"
#include "trireme/testing/run_processes.h"

namespace trireme::worker_range_test {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// Says "alone" until the file argv[1] is there, or somebody asks it to stop.
TRIREME_PROCESS(trains_alone) {
  Job job(argc, argv);
  job.servers().train_alone();
  Event pauses;  // never set
  while (job.stop_signal() == 0 && !std::filesystem::exists(argv[1])) {
    std::printf("alone\n");
    std::fflush(stdout);
    pauses.wait(milliseconds(20));
  }
  return job.stop_signal();
}

class WorkerRange : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::path(::testing::TempDir()) / ("range-" + std::to_string(getpid()));
    std::filesystem::create_directory(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  // Two workers, of one to three.
  launch::LaunchOptions options() {
    launch::LaunchOptions options = testing::process_launch_options(
        2, "trains_alone", {.time_limit = seconds(60), .arguments = {folder_ / "end"}});
    options.handle_signals = false;
    options.range = launch::WorkerRange{.min = 1, .max = 3};
    options.wanted_file = folder_ / "wanted";
    options.on_start = [this](int rank, pid_t pid) {
      pids_[rank] = pid;
      ++starts_[rank];
    };
    return options;
  }
  void want(int workers) {
    std::ofstream(folder_ / "next") << workers << "\n";
    std::filesystem::rename(folder_ / "next", folder_ / "wanted");
  }
  void end() { std::ofstream(folder_ / "end"); }

  std::filesystem::path folder_;
  std::map<int, pid_t> pids_;
  std::map<int, int> starts_;
};

TEST_F(WorkerRange, AddsAndDismissesWorkersAsTheUserWants) {
  launch::LaunchOptions job = options();
  int quiet = 0;  // lines of rank 0 since another one has written
  job.on_line = [&](int rank, bool, std::string_view line) {
    if (line != "alone") return;
    if (rank == 1 && starts_[2] == 0) want(3);
    if (rank == 2) want(1);
    quiet = rank == 0 && starts_[2] > 0 ? quiet + 1 : 0;
    if (quiet == 50) end();
  };
  const launch::LaunchResult result = launch::launch(job);
  EXPECT_EQ(result.exit_code, 0) << result.last_line;
  EXPECT_EQ(starts_[2], 1);
  EXPECT_EQ(result.exit_codes[0], 0);
  EXPECT_EQ(result.exit_codes[1], 143) << "it was dismissed";
  EXPECT_EQ(result.exit_codes[2], 143) << "it was dismissed";
}

TEST_F(WorkerRange, StartsAWorkerAgainThatWasKilled) {
  launch::LaunchOptions job = options();
  job.on_line = [&](int rank, bool, std::string_view line) {
    if (line != "alone" || rank != 1) return;
    if (starts_[1] == 1) testing::send_signal(pids_[1], SIGKILL);
    if (starts_[1] == 2) end();
  };
  const launch::LaunchResult result = launch::launch(job);
  EXPECT_EQ(result.exit_code, 0) << result.last_line;
  EXPECT_EQ(starts_[1], 2);
}

TEST_F(WorkerRange, AsksAgainForAsManyAsBefore) {
  launch::LaunchOptions job = options();
  job.restarts = 0;
  job.on_line = [&](int rank, bool, std::string_view line) {
    if (line != "alone") return;
    if (rank == 0 && starts_[2] == 0) want(3);
    if (rank == 2 && starts_[2] == 1) testing::send_signal(pids_[2], SIGKILL);
    if (rank == 0 && starts_[2] == 1 && ::kill(pids_[2], 0) != 0) want(3);
    if (rank == 2 && starts_[2] == 2) end();
  };
  const launch::LaunchResult result = launch::launch(job);
  EXPECT_EQ(result.exit_code, 0) << result.last_line;
  EXPECT_EQ(starts_[2], 2);
}

TEST_F(WorkerRange, FailsIfItsFirstWorkerCannotBeStartedAgain) {
  launch::LaunchOptions job = options();
  const std::filesystem::path program = folder_ / "program";
  std::filesystem::create_symlink(job.command[0], program);
  job.command[0] = program;
  job.on_line = [&](int rank, bool, std::string_view line) {
    if (line != "alone" || rank != 0) return;
    std::filesystem::remove(program);
    testing::send_signal(pids_[0], SIGKILL);
  };
  const launch::LaunchResult result = launch::launch(job);
  EXPECT_EQ(result.exit_code, static_cast<int>(ExitCode::Resource)) << result.last_line;
  EXPECT_FALSE(result.out_of_time) << "it waits for a start that will not come";
  EXPECT_NE(result.last_line.find("rank 0 cannot be started again"), std::string::npos)
      << result.last_line;
}

}  // namespace
}  // namespace trireme::worker_range_test
