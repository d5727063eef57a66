// The launcher with programs that do not use Trireme, and with Jobs that end regularly.
#include "trireme/launch/launch.h"

#include <gtest/gtest.h>
#include <signal.h>

#include <cstdlib>
#include <set>

#include "trireme/base/error.h"
#include "trireme/job.h"
#include "trireme/testing/run_processes.h"

namespace trireme {
namespace {

using testing::ProcessOptions;
using testing::ProcessRun;
using testing::run_processes;

struct Shell {
  launch::LaunchResult result;
  std::string out[4], err[4];
};

Shell shell(int ranks, const std::string& script) {
  Shell run;
  launch::LaunchOptions options;
  options.ranks = ranks;
  options.command = {"sh", "-c", script};
  options.bind = launch::Bind::None;
  options.handle_signals = false;
  options.time_limit = std::chrono::seconds(30);
  options.on_line = [&](int rank, bool error, std::string_view line) {
    (error ? run.err : run.out)[rank].append(line).append("\n");
  };
  run.result = launch::launch(options);
  return run;
}

TEST(Launch, WithinAnElasticJobIsNotElasticItself) {
  setenv("TRIREME_ELASTIC", "1", 1);
  const Shell run = shell(1, "echo $TRIREME_ELASTIC");
  unsetenv("TRIREME_ELASTIC");
  EXPECT_EQ(run.out[0], "0\n");
}

TEST(Launch, GivesEveryProgramItsRankAndKeepsStreamsApart) {
  const Shell run = shell(3, "echo rank $TRIREME_RANK of $TRIREME_SIZE; echo oops >&2");
  EXPECT_EQ(run.result.exit_code, 0);
  EXPECT_EQ(run.result.last_line, "");
  for (int rank = 0; rank < 3; ++rank) {
    EXPECT_EQ(run.out[rank], "rank " + std::to_string(rank) + " of 3\n");
    EXPECT_EQ(run.err[rank], "oops\n");
  }
}

TEST(Launch, KeepsTheSecretOutOfEnvironmentAndArguments) {
  const Shell run = shell(
      1, "env; tr '\\0' ' ' < /proc/$$/cmdline; echo; wc -c < /proc/self/fd/$TRIREME_SECRET_FD");
  EXPECT_EQ(run.out[0].find("SECRET="), std::string::npos);
  EXPECT_NE(run.out[0].find("\n32\n"), std::string::npos) << run.out[0];
}

TEST(Launch, EndsAllWhenOneFails) {
  const TimePoint start = steady_now();
  const Shell run = shell(3, "[ $TRIREME_RANK = 1 ] && exit 7; exec sleep 60");
  EXPECT_LT(steady_now() - start, std::chrono::seconds(2));
  EXPECT_EQ(run.result.exit_code, 7);
  EXPECT_EQ(run.result.last_line.find("rank 1 on host "), 0u) << run.result.last_line;
  EXPECT_NE(run.result.last_line.find("ended with exit code 7"), std::string::npos);
  EXPECT_EQ(run.result.exit_codes[0], 143);
}

TEST(Launch, KillsAProgramThatIgnoresSigtermAndItsChildren) {
  const TimePoint start = steady_now();
  const Shell run = shell(
      2, "[ $TRIREME_RANK = 0 ] && { sleep 0.3; exit 9; }; trap '' TERM; sleep 60 & sleep 60");
  EXPECT_LT(steady_now() - start, std::chrono::milliseconds(2500));
  EXPECT_EQ(run.result.exit_code, 9);
  EXPECT_EQ(run.result.exit_codes[1], 137);
}

TEST(Launch, NamesTheSignalThatKilledARank) {
  const Shell run = shell(2, "[ $TRIREME_RANK = 1 ] && kill -SEGV $$; exec sleep 60");
  EXPECT_EQ(run.result.exit_code, 139);
  EXPECT_NE(run.result.last_line.find("was killed by signal 11 (SIGSEGV)"), std::string::npos)
      << run.result.last_line;
}

TEST(Launch, AnElasticJobEndsIfItsStartFailsHalfWay) {
  launch::LaunchOptions options;
  options.ranks = 3;
  options.elastic = launch::ElasticOptions{.min = 1, .max = 3};
  options.command = {"sleep", "60"};
  options.handle_signals = false;
  options.time_limit = std::chrono::seconds(30);
  int starts = 0;
  options.on_start = [&](int rank, pid_t) {
    ++starts;
    if (rank == 1) throw ResourceError("no process is left");
  };
  EXPECT_THROW(launch::launch(options), ResourceError);
  EXPECT_EQ(starts, 2);
}

// Rank 0 ends once the launcher has seen the spare's end.
TEST(Launch, ASignalToASpareStopsNobodyElse) {
  launch::LaunchOptions options;
  options.ranks = 1;
  options.elastic = launch::ElasticOptions{.min = 1, .max = 1, .spares = 1};
  options.command = {"sh", "-c",
                     "[ $TRIREME_RANK = 1 ] && exit 143; trap 'exit 0' USR1; while :; do echo .; "
                     "sleep 0.01; done"};
  options.handle_signals = false;
  options.time_limit = std::chrono::seconds(30);
  pid_t pids[2] = {};
  options.on_start = [&](int rank, pid_t pid) { pids[rank] = pid; };
  options.on_line = [&](int, bool, std::string_view) {
    if (pids[1] > 0 && kill(pids[1], 0) != 0) testing::send_signal(pids[0], SIGUSR1);
  };
  const launch::LaunchResult result = launch::launch(options);
  EXPECT_EQ(result.exit_code, 0) << result.last_line;
  EXPECT_EQ(result.exit_codes, (std::vector{0, 143}));
}

TEST(Launch, RefusesWhatItCannotRun) {
  launch::LaunchOptions options;
  options.ranks = 2;
  options.command = {"./no-such-program"};
  EXPECT_THROW(launch::launch(options), ConfigError);
  EXPECT_EQ(launch::run(options), 2);
  options.command = {"true"};
  options.listen = "0.0.0.0";
  EXPECT_EQ(launch::run(options), 2);  // a non-loopback bind without the user's secret
}

TRIREME_PROCESS(alone) {
  Job job(argc, argv);
  std::vector<float> x{1, 2, 3};
  all_reduce(job.world(), x, Sum);
  std::printf("%d of %d: %g\n", job.rank(), job.size(), x[2]);
  return 0;
}

TRIREME_PROCESS(sums) {
  Job job(argc, argv);
  for (int i = 0; i < 50; ++i) {
    std::vector<float> x{1, 2, static_cast<float>(job.rank())};
    all_reduce(job.world(), x, Sum);
    if (x[1] != 2.0f * job.size()) return 1;
  }
  std::printf("%d of %d over %s\n", job.rank(), job.size(),
              std::string(job.world().transport_name()).c_str());
  return 0;
}

TEST(Job, StartedAloneIsOneRankWithoutANetwork) {
  ProcessOptions options;
  options.environment = {"TRIREME_COORDINATOR="};
  const ProcessRun run = run_processes(1, "alone", options);
  EXPECT_EQ(run.exit_code, 0) << run.describe();
  EXPECT_EQ(run.ranks[0].out, "0 of 1: 3\n");
}

TEST(Job, RefusesToTrainCopiesSideBySide) {
  ProcessOptions options;
  options.environment = {"TRIREME_COORDINATOR=", "OMPI_COMM_WORLD_SIZE=4"};
  const ProcessRun run = run_processes(1, "alone", options);
  EXPECT_EQ(run.exit_code, 2) << run.describe();
  EXPECT_NE(run.ranks[0].err.find("trireme launch"), std::string::npos) << run.describe();
}

TEST(Job, NamesABadOptionInTheLastLine) {
  ProcessOptions options;
  options.transport = "pigeon";
  const ProcessRun run = run_processes(2, "alone", options);
  EXPECT_EQ(run.exit_code, 2) << run.describe();
  EXPECT_NE(run.last_line.find("unknown transport 'pigeon'"), std::string::npos) << run.describe();
}

// A user may have exported by mistake the variables that the launcher sets for its ranks.
TEST(Job, RefusesAMalformedEnvironmentInASentence) {
  const char* const names[] = {"TRIREME_RANK",         "TRIREME_SIZE",    "TRIREME_LOCAL_RANK",
                               "TRIREME_LOCAL_SIZE",   "TRIREME_JOB",     "TRIREME_SECRET_FD",
                               "TRIREME_STATUS_FD",    "TRIREME_CORES",   "TRIREME_COORDINATOR",
                               "TRIREME_SHARED_CORES", "TRIREME_TIMEOUT", "TRIREME_COMM_RATE",
                               "TRIREME_ADDRESS"};
  const std::set<int> allowed = {0, 2, 10, 11, 161, 170};
  for (const std::string name : names) {
    for (const std::string value : {"", " ", "x", "-1", "0", "1", "77", "2147483647", "1e99",
                                    "99999999999999999999", "127.0.0.1:1", "[::", "\xff\n"}) {
      ProcessOptions options;
      options.timeout = std::chrono::seconds(1);
      options.environment = {name + "=" + value};
      const ProcessRun run = run_processes(1, "alone", options);
      EXPECT_EQ(allowed.count(run.exit_code), 1u) << name << "=" << value << "\n" << run.describe();
      EXPECT_EQ(run.ranks[0].err.find("terminate called"), std::string::npos) << run.describe();
      if (run.exit_code == 0) continue;
      EXPECT_NE(run.ranks[0].err.find("trireme: "), std::string::npos)
          << name << "=" << value << "\n"
          << run.describe();
    }
  }
}

class Jobs : public ::testing::TestWithParam<std::string> {};

TEST_P(Jobs, JoinAndSum) {
  for (const int ranks : {1, 2, 3}) {
    ProcessOptions options;
    options.transport = GetParam();
    const ProcessRun run = run_processes(ranks, "sums", options);
    ASSERT_EQ(run.exit_code, 0) << run.describe();
    for (int rank = 0; rank < ranks; ++rank) {
      const std::string transport = ranks == 1 ? "alone" : GetParam();
      EXPECT_EQ(run.ranks[rank].out, std::to_string(rank) + " of " + std::to_string(ranks) +
                                         " over " + transport + "\n");
      EXPECT_EQ(run.ranks[rank].err, "");
    }
  }
}
INSTANTIATE_TEST_SUITE_P(Transports, Jobs, ::testing::Values("shm", "tcp"));

TRIREME_PROCESS(brief) {
  Job job(argc, argv);
  std::vector<float> x(1 << 18, 1.0f);
  all_reduce(job.world(), x, Sum);
  return x[0] == static_cast<float>(job.size()) ? 0 : 1;
}

// The first rank out of the last collective leaves while others are still in it.
TEST_P(Jobs, MayEndRightAfterACollective) {
  ProcessOptions options;
  options.transport = GetParam();
  for (options.seed = 1; options.seed <= 8; ++options.seed) {
    const ProcessRun run = run_processes(3, "brief", options);
    ASSERT_EQ(run.exit_code, 0) << run.describe();
  }
}

TRIREME_PROCESS(unlike) {
  JobOptions options;
  options.identity = std::string(std::getenv("TRIREME_RANK")) == "1" ? "seed 8" : "seed 7";
  Job job(argc, argv, options);
  return 0;
}

TEST(Job, RefusesARankWhoseIdentityDiffers) {
  const ProcessRun run = run_processes(2, "unlike");
  EXPECT_EQ(run.exit_code, 10) << run.describe();
  EXPECT_NE(run.last_line.find("\"seed 8\""), std::string::npos) << run.describe();
  EXPECT_NE(run.last_line.find("\"seed 7\""), std::string::npos) << run.describe();
}

}  // namespace
}  // namespace trireme
