// Ranks started by torchrun, srun or a TFJob, which give them rank numbers but no transport: one
// job, on one host and on several, and the error if they cannot form one. Here the variables are
// set by hand; torchrun.2 and srun.4 run the programs themselves if they are installed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "trireme/base/error.h"
#include "trireme/base/event.h"
#include "trireme/base/waiter.h"
#include "trireme/job.h"
#include "trireme/testing/run_processes.h"

namespace trireme {
namespace {

using std::chrono::seconds;
using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::ProcessOptions;
using testing::ProcessRun;
using testing::run_processes;

constexpr int kRanks = 3;
constexpr Duration kLook = std::chrono::milliseconds(5);

void set(const char* name, const std::string& value) { setenv(name, value.c_str(), 1); }

// Task `rank` of a TFJob of a chief, which is rank 0, and `size - 1` workers.
std::string tf_config(int rank, int size, bool one_host, long start) {
  const auto address = [&](int of) {
    const std::string host = one_host || of == 0 ? "127.0.0.1" : "host" + std::to_string(of);
    return "\"" + host + ":" + std::to_string(20000 + (start * 10 + of) % 10000) + "\"";
  };
  std::string workers;
  for (int of = 1; of < size; ++of) workers += (of > 1 ? "," : "") + address(of);
  return R"({"cluster":{"chief":[)" + address(0) + R"(],"worker":[)" + workers +
         R"(]},"task":{"type":")" + (rank == 0 ? "chief" : "worker") + R"(","index":)" +
         std::to_string(std::max(rank - 1, 0)) + R"(},"environment":"cloud"})";
}

// Sets the environment that `launcher` gives rank TRIREME_RANK of TRIREME_SIZE; `one_host`: all on
// one host, otherwise each on its own.
void pretend(const std::string& launcher, bool one_host) {
  const std::string rank = std::getenv("TRIREME_RANK"), size = std::getenv("TRIREME_SIZE");
  const std::string id = std::getenv("TRIREME_START_ID");
  if (!one_host) set("TRIREME_HOST", "host" + rank);
  if (launcher == "torchrun") {
    set("RANK", rank);
    set("WORLD_SIZE", size);
    set("LOCAL_RANK", one_host ? rank : "0");
    set("LOCAL_WORLD_SIZE", one_host ? size : "1");
    set("MASTER_ADDR", "127.0.0.1");
    set("MASTER_PORT", "29500");
    set("TORCHELASTIC_RUN_ID", id);
  } else if (launcher == "IndexedJob") {
    set("JOB_COMPLETION_INDEX", rank);
    set("TRIREME_JOB_COMPLETIONS", size);
    set("TRIREME_JOB_FIRST_HOST", "127.0.0.1");
  } else if (launcher == "TF_CONFIG") {
    set("TF_CONFIG", tf_config(std::stoi(rank), std::stoi(size), one_host, std::stol(id)));
  } else {
    set("SLURM_PROCID", rank);
    set("SLURM_NTASKS", size);
    set("SLURM_LOCALID", one_host ? rank : "0");
    set("SLURM_NODEID", one_host ? "0" : rank);
    set("SLURM_JOB_ID", id);
    set("SLURM_STEP_ID", "0");
    set("SLURM_STEP_NUM_NODES", one_host ? "1" : size);
    set("SLURM_STEP_TASKS_PER_NODE", one_host ? size : "1(x" + size + ")");
    set("SLURM_STEP_NODELIST", one_host ? "localhost" : "localhost,other,another");
  }
}

ProcessOptions options_for(const std::string& launcher, bool one_host) {
  static int starts = 0;
  ProcessOptions options;
  options.arguments = {launcher, one_host ? "one" : "several"};
  options.environment = {"TRIREME_COORDINATOR=",
                         "TRIREME_START_ID=" + std::to_string(getpid() * 100 + starts++)};
  return options;
}

// A file that only its owner may read; removed by the destructor.
class SecretFile {
 public:
  SecretFile() : path_(::testing::TempDir() + "trireme-starts-" + std::to_string(getpid())) {
    std::ofstream(path_) << "a secret of these starts alone";
    std::filesystem::permissions(path_, std::filesystem::perms::owner_read);
  }
  ~SecretFile() { std::filesystem::remove(path_); }
  std::string variable() const { return "TRIREME_JOB_SECRET_FILE=" + path_; }

 private:
  const std::string path_;
};

TRIREME_PROCESS(sums) {  // twice: the second Job must connect as the first one did
  if (argc > 1) pretend(argv[1], std::string(argv[2]) == "one");
  for (int time = 0; time < 2; ++time) {
    Job job(argc, argv);
    std::vector<float> x(5000, static_cast<float>(job.rank() + 1));
    all_reduce(job.world(), x, Sum);
    if (x != std::vector<float>(5000, job.size() * (job.size() + 1) / 2.0f)) return 4;
    std::printf("rank %d of %d over %s, %d of %d here\n", job.rank(), job.size(),
                std::string(job.world().transport_name()).c_str(), job.local_rank(),
                job.local_size());
  }
  return 0;
}

class Starts : public ::testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(By, Starts, ::testing::Values("torchrun", "srun", "TF_CONFIG"),
                         [](const auto& info) { return info.param; });

TEST_P(Starts, RanksOfOneHostAreOneJob) {
  const ProcessRun run = run_processes(kRanks, "sums", options_for(GetParam(), true));
  EXPECT_EQ(run.exit_code, 0) << run.describe();
  for (int rank = 0; rank < kRanks; ++rank) {
    const std::string line =
        "rank " + std::to_string(rank) + " of 3 over shm, " + std::to_string(rank) + " of 3 here\n";
    EXPECT_EQ(run.ranks[rank].out, line + line) << run.describe();
  }
}

TEST_P(Starts, RanksOfSeveralHostsMeetWithTheUsersSecret) {
  const SecretFile secret;
  ProcessOptions options = options_for(GetParam(), false);
  options.environment.push_back(secret.variable());
  const ProcessRun run = run_processes(kRanks, "sums", options);
  EXPECT_EQ(run.exit_code, 0) << run.describe();
  for (int rank = 0; rank < kRanks; ++rank) {
    const std::string line = "rank " + std::to_string(rank) + " of 3 over mixed, 0 of 1 here\n";
    EXPECT_EQ(run.ranks[rank].out, line + line) << run.describe();
  }
}

TRIREME_PROCESS(unlike_rank_0) {
  JobOptions options;
  options.identity = std::string(std::getenv("TRIREME_RANK")) == "0" ? "seed 8" : "seed 7";
  pretend(argv[1], true);
  Job job(argc, argv, options);
  return 0;
}

// Whichever process ends first may give a foreign launcher its exit code.
TEST_P(Starts, ARefusedRankGivesAllItsExitCode) {
  const ProcessRun run = run_processes(2, "unlike_rank_0", options_for(GetParam(), true));
  for (const testing::ProcessOutcome& rank : run.ranks) {
    EXPECT_EQ(rank.exit_code, 10) << run.describe();
    EXPECT_THAT(rank.err, AllOf(HasSubstr("\"seed 8\""), HasSubstr("\"seed 7\"")))
        << run.describe();
  }
}

TEST(TFJob, FourProcessesAreOneJob) {
  const SecretFile secret;
  ProcessOptions options = options_for("TF_CONFIG", false);
  options.environment.push_back(secret.variable());
  const ProcessRun run = run_processes(4, "sums", options);
  EXPECT_EQ(run.exit_code, 0) << run.describe();
  for (int rank = 0; rank < 4; ++rank) {
    EXPECT_THAT(run.ranks[rank].out, HasSubstr("rank " + std::to_string(rank) + " of 4 over mixed"))
        << run.describe();
  }
}

// Processes of a TFJob of a chief, a worker, two servers and an evaluator, in this order.
std::string tf_config_of_roles(int process, const std::string& id) {
  const std::string port = std::to_string(20000 + std::stol(id) % 10000);
  const char* const tasks[] = {R"("chief","index":0)", R"("worker","index":0)", R"("ps","index":0)",
                               R"("ps","index":1)", R"("evaluator","index":0)"};
  return R"({"cluster":{"chief":["127.0.0.1:)" + port + R"("],"worker":["w0:1"],)" +
         R"("ps":["p0:1","p1:1"]},"task":{"type":)" + tasks[process] +
         R"(},"environment":"cloud"})";
}

TRIREME_PROCESS(roles) {
  const std::string process = std::getenv("TRIREME_RANK");
  set("TRIREME_HOST", "host" + process);
  set("TF_CONFIG", tf_config_of_roles(std::stoi(process), std::getenv("TRIREME_START_ID")));
  Job job(argc, argv);
  const char* const names[] = {"worker", "chief", "server", "evaluator"};
  std::printf("%s %d of %d, %d workers, %d servers%s\n", names[static_cast<int>(job.role())],
              job.rank(), job.size(), job.roles().workers, job.roles().servers,
              job.roles().evaluator ? ", an evaluator" : "");
  if (job.role() == Role::Server || job.role() == Role::Evaluator) {
    if (job.role() == Role::Evaluator) std::ofstream(argv[1]) << "joined";
    job.waiter()->wait_until([&] { return job.finished(); }, TimePoint::max());
    return 0;
  }
  std::vector<float> x{1};
  for (int i = 0; i < 10; ++i) all_reduce(job.world(), x, Mean);
  // The chief does not know whether an evaluator comes, and would end without it.
  while (job.rank() == 0 && !std::filesystem::exists(argv[1])) job.waiter()->sleep(kLook);
  return 0;
}

TEST(TFJob, GivesEachProcessItsRole) {
  const SecretFile secret;
  ProcessOptions options = options_for("TF_CONFIG", false);
  options.environment.push_back(secret.variable());
  const std::string joined = ::testing::TempDir() + "trireme-joined-" + std::to_string(getpid());
  options.arguments = {joined};
  const ProcessRun run = run_processes(5, "roles", options);
  std::filesystem::remove(joined);
  EXPECT_EQ(run.exit_code, 0) << run.describe();
  const char* const expected[] = {
      "chief 0 of 2, 2 workers, 2 servers\n", "worker 1 of 2, 2 workers, 2 servers\n",
      "server 0 of 2, 2 workers, 2 servers\n", "server 1 of 2, 2 workers, 2 servers\n",
      "evaluator 0 of 1, 2 workers, 2 servers, an evaluator\n"};
  for (int process = 0; process < 5; ++process)
    EXPECT_EQ(run.ranks[process].out, expected[process]) << run.describe();
}

TEST(IndexedJob, TwoPodsAreOneJob) {
  const SecretFile secret;
  ProcessOptions options = options_for("IndexedJob", false);
  options.environment.push_back(secret.variable());
  const ProcessRun run = run_processes(2, "sums", options);
  EXPECT_EQ(run.exit_code, 0) << run.describe();
  for (int rank = 0; rank < 2; ++rank) {
    EXPECT_THAT(run.ranks[rank].out, HasSubstr("rank " + std::to_string(rank) + " of 2 over mixed"))
        << run.describe();
  }
}

TEST_P(Starts, SeveralHostsWithoutASecretAreRefused) {
  const ProcessRun run = run_processes(kRanks, "sums", options_for(GetParam(), false));
  EXPECT_EQ(run.exit_code, 2) << run.describe();
  EXPECT_THAT(run.describe(), HasSubstr("TRIREME_JOB_SECRET_FILE"));
}

TRIREME_PROCESS(late) {
  pretend(argv[1], true);
  if (std::string(std::getenv("TRIREME_RANK")) == "0") Event().wait(seconds(20));
  Job job(argc, argv);
  return 0;
}

TEST_P(Starts, ARank0ThatDoesNotComeIsNamed) {
  ProcessOptions options = options_for(GetParam(), true);
  options.timeout = seconds(1);
  const ProcessRun run = run_processes(kRanks, "late", options);
  EXPECT_EQ(run.exit_code, 161) << run.describe();
  EXPECT_THAT(run.describe(), HasSubstr("rank 0 did not come to the meeting of " + GetParam()));
}

// Only rank 0's coordinator watches these ranks.
TRIREME_PROCESS(killed) {
  pretend(argv[1], true);
  const int victim = std::atoi(argv[3]);
  Job job(argc, argv);
  barrier(job.world());
  if (job.rank() == victim) raise(SIGKILL);
  std::vector<float> never(1);  // from a live rank: only the coordinator reports
  job.world().recv(buffer_of(never), 3 - victim - job.rank()).wait();
  return 0;
}

TEST_P(Starts, ADeathIsKnownAtOnce) {
  for (const int victim : {0, 2}) {
    ProcessOptions options = options_for(GetParam(), true);
    options.transport = "tcp";
    options.timeout = seconds(20);
    options.arguments.push_back(std::to_string(victim));
    const ProcessRun run = run_processes(kRanks, "killed", options);
    EXPECT_EQ(run.exit_code, 137) << run.describe();
    EXPECT_LT(run.took, seconds(10)) << run.describe();
    int named = 0;  // a rank that knows may end before the other knows
    for (int rank = 0; rank < kRanks; ++rank) {
      if (rank == victim) continue;
      EXPECT_GE(run.ranks[rank].exit_code, 137) << run.describe();
      named += run.ranks[rank].err.find("rank " + std::to_string(victim)) != std::string::npos;
    }
    EXPECT_GE(named, 1) << run.describe();
  }
}

}  // namespace
}  // namespace trireme
