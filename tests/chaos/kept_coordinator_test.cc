// A launcher's coordinator that is killed while programs without LibTorch run.
#include "trireme/launch/coordinator/kept_coordinator.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>

#include "trireme/base/error.h"
#include "trireme/job.h"
#include "trireme/job/job.h"
#include "trireme/launch/coordinator/coordinator_messages.h"
#include "trireme/rendezvous/coordinator/state_store.h"
#include "trireme/testing/run_processes.h"

namespace trireme {
namespace {

using std::chrono::seconds;
using testing::ProcessOptions;
using testing::send_signal;

TRIREME_PROCESS(coordinates) { return launch::run_coordinator_process(); }

// Sums, and a line now and then, until the file argv[1] is there.
void sum_until(const Job& job, const char* file) {
  for (long step = 1;; ++step) {
    std::vector<float> last{job.rank() == 0 && std::filesystem::exists(file) ? 1.0f : 0.0f};
    all_reduce(job.world(), last, Max);
    if (last[0] == 1.0f) return;
    if (job.rank() != 0 || step % 50 != 0) continue;
    std::printf("running\n");
    std::fflush(stdout);
  }
}

TRIREME_PROCESS(kept_sums) {
  Job job(argc, argv);
  sum_until(job, argv[1]);
  return 0;
}

TRIREME_PROCESS(elastic_sums) {
  Job job(argc, argv);
  return run_elastic(job, [&] {
    sum_until(job, argv[1]);
    return 0;
  });
}

std::string text_of(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// The coordinator among this process's children; -1: it is not there.
pid_t coordinator() {
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    const std::string status = text_of(entry.path() / "status");
    if (status.find("\nPPid:\t" + std::to_string(getpid()) + "\n") != std::string::npos &&
        text_of(entry.path() / "environ").find("TRIREME_TEST_PROCESS=coordinates") !=
            std::string::npos)
      return std::stoi(entry.path().filename());
  }
  return -1;
}

class KeptCoordinator : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::path(::testing::TempDir()) / ("kept-" + std::to_string(getpid()));
    std::filesystem::create_directory(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  launch::LaunchOptions options(int ranks, const char* body) const {
    launch::LaunchOptions options = testing::process_launch_options(
        ranks, body, {.time_limit = seconds(120), .arguments = {folder_ / "end"}});
    options.handle_signals = false;
    options.store = folder_;
    options.coordinator = {"env", "TRIREME_TEST_PROCESS=coordinates", "/proc/self/exe"};
    options.coordinator[2] = std::filesystem::read_symlink(options.coordinator[2]);
    return options;
  }
  // Kills each coordinator that it sees, up to `most`; then, when another one is there, lets the job end.
  void kill_coordinator(std::size_t most) {
    const pid_t one = coordinator();
    if (one < 0 || killed_.count(one) > 0) return;
    if (killed_.size() == most) {
      std::ofstream(folder_ / "end");
    } else {
      killed_.insert(one);
      send_signal(one, SIGKILL);
    }
  }
  std::filesystem::path folder_;
  std::set<pid_t> killed_;
};

TEST_F(KeptCoordinator, MayBeKilledWhileAJobRuns) {
  launch::LaunchOptions job = options(2, "kept_sums");
  job.on_line = [&](int, bool, std::string_view line) {
    if (line == "running") kill_coordinator(3);
  };
  const launch::LaunchResult result = launch::launch(job);
  EXPECT_EQ(result.exit_code, 0) << result.last_line;
  EXPECT_EQ(killed_.size(), 3u);
  EXPECT_FALSE(std::filesystem::exists(folder_ / "coordinator.state"));
}

TEST_F(KeptCoordinator, MayBeKilledTogetherWithARank) {
  launch::LaunchOptions job = options(3, "elastic_sums");
  job.elastic = {.min = 1, .max = 3, .pace = {.first = std::chrono::milliseconds(100)}};
  pid_t victim = -1;
  int starts = 0;
  job.on_start = [&](int rank, pid_t pid) {
    if (rank != 1) return;
    victim = pid;
    ++starts;
  };
  job.on_line = [&](int, bool, std::string_view line) {
    if (line != "running") return;
    const std::size_t before = killed_.size();
    kill_coordinator(2);
    if (killed_.size() > before) send_signal(victim, SIGKILL);
  };
  const launch::LaunchResult result = launch::launch(job);
  EXPECT_EQ(result.exit_code, 0) << result.last_line;
  EXPECT_EQ(killed_.size(), 2u);
  EXPECT_GE(starts, 2);
}

TEST_F(KeptCoordinator, ThatCannotBeginEndsTheLaunch) {
  launch::LaunchOptions job = options(1, "kept_sums");
  job.coordinator = {"false"};
  EXPECT_THROW(launch::launch(job), ResourceError);
  job.coordinator = {"/no/such/program"};
  EXPECT_THROW(launch::launch(job), ConfigError);
  job = options(1, "kept_sums");
  const auto taken = rendezvous::make_store(folder_);
  taken->open();
  EXPECT_THROW(launch::launch(job), ConfigError);
}

}  // namespace
}  // namespace trireme
