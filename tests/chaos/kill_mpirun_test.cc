// A rank killed under each mpirun, in each phase of each algorithm, over MPI and over shared memory
// within hosts and MPI between them. An mpirun that notices first ends the job itself. Otherwise
// the survivors name the dead rank and end the job by MPI_Abort with 160 to 169. MPI does not
// report a death: survivors learn it from the coordinator in rank 0, or from that rank's end.
//
// Kills one rank for some algorithms; tests/chaos/kill_mpirun.full (label soak) kills each in all.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "tests/chaos/killing.h"
#include "trireme/net/mpi/mpi_library.h"

namespace trireme {
namespace {

namespace fs = std::filesystem;
using test::Killing, test::kRanks;
using ::testing::HasSubstr;

TRIREME_PROCESS(dies_under_mpirun) {
  Job job(argc, argv);
  const Killing plan = Killing::from(argv);
  std::unique_ptr<net::MpiGroup> group;  // made where the job's own MPI calls run
  std::atomic<bool> made{false};
  job.waiter()->run([&] {
    group = std::make_unique<net::MpiGroup>();
    made = true;
    job.waiter()->wake();
  });
  job.waiter()->wait_until([&] { return made.load(); }, TimePoint::max());
  const auto over_mpi = [&](auto&&...) { return net::connect_mpi(job.waiter(), std::move(group)); };
  const net::ConnectOptions options{.rank = job.rank(), .size = job.size(), .secret = "matrix"};
  test::call_until_killed(
      job,
      plan.transport == "mpi"
          ? over_mpi()
          : net::connect_mixed(job.waiter(), options, test::exchange_over(job.world()),
                               test::kHosts, over_mpi),
      plan);
}

struct MpirunEnd {
  int exit_code = -1;
  std::string text;          // mpirun's own output
  std::string said[kRanks];  // the ranks' output; mpirun may lose some when it ends
  Duration took{};
  std::string describe() const {
    std::string all = "exit code " + std::to_string(exit_code) + "\n" + text;
    for (int rank = 0; rank < kRanks; ++rank) {
      all += "--- rank " + std::to_string(rank) + "\n" + said[rank];
    }
    return all;
  }
};

// `sees`: the ranks are mpirun's own children; otherwise they are children of shells that live on.
MpirunEnd mpirun(const std::string& mpi, const Killing& plan, bool sees) {
  const std::string folder =
      ::testing::TempDir() + "trireme-kill-mpirun-" + std::to_string(getpid());
  fs::create_directory(folder);
  std::string command =
      "OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 "
      "TRIREME_TEST_PROCESS=dies_under_mpirun"
      " TRIREME_TIMEOUT=20 TRIREME_COMM_TRANSPORT=mpi timeout -k 5 40 mpirun." +
      mpi + " -n " + std::to_string(kRanks);
  if (mpi == "openmpi") command += " --oversubscribe";
  command += std::string(" sh -c '") + (sees ? "exec " : "") + "\"$0\" \"$@\" > " + folder +
             "/${PMI_RANK:-$OMPI_COMM_WORLD_RANK} 2>&1; sleep 15' " +
             fs::read_symlink("/proc/self/exe").string();
  for (const auto& argument : plan.arguments()) command += " " + argument;
  MpirunEnd outcome;
  const TimePoint start = steady_now();
  FILE* const pipe = popen((command + " 2>&1").c_str(), "r");
  char line[4096];
  while (std::fgets(line, sizeof line, pipe)) outcome.text += line;
  const int status = pclose(pipe);
  outcome.took = steady_now() - start;
  outcome.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  for (int rank = 0; rank < kRanks; ++rank) {
    std::ostringstream said;
    said << std::ifstream(folder + "/" + std::to_string(rank)).rdbuf();
    outcome.said[rank] = said.str();
  }
  fs::remove_all(folder);
  return outcome;
}

// The first MPI_Abort may end the other survivor before it has printed anything.
void expect_named(const std::string& mpi, const Killing& plan) {
  SCOPED_TRACE(plan);
  const MpirunEnd outcome = mpirun(mpi, plan, false);
  EXPECT_LT(outcome.took, std::chrono::seconds(15)) << outcome.describe();
  EXPECT_GE(outcome.exit_code, 160) << outcome.describe();
  EXPECT_LE(outcome.exit_code, 169) << outcome.describe();
  int named = 0;
  for (int rank = 0; rank < kRanks; ++rank) {
    if (rank == plan.victim || outcome.said[rank].empty()) continue;
    EXPECT_EQ(outcome.said[rank].rfind("lost in time\n", 0), 0u) << outcome.describe();
    EXPECT_THAT(outcome.said[rank], HasSubstr("rank " + std::to_string(plan.victim)));
    ++named;
  }
  EXPECT_GE(named, 1) << outcome.describe();
}

std::vector<Killing> mpirun_plans() {
  if (!std::getenv("TRIREME_KILL_PLACES")) {
    return {{"mpi", "messages", "ring", false, 7, 1},
            {"mpi", "peer", "all_gather", false, 3, 0},
            {"mixed-mpi", "messages", "hierarchical", false, 5, 2},
            {"mixed-mpi", "messages", "all_gather", true, 4, 1}};
  }
  std::vector<Killing> all;
  for (const char* transport : {"mpi", "mixed-mpi"}) {
    for (const auto& some : {test::all_reduces(), test::movers(), test::other_rounds()}) {
      for (const auto& what : some) all.push_back({transport, "messages", what});
    }
  }
  for (const auto& what : test::movers()) all.push_back({"mixed-mpi", "moves", what, true});
  return all;
}

class KilledUnderMpirun : public ::testing::TestWithParam<std::string> {};

TEST_P(KilledUnderMpirun, TheSurvivorsNameTheRankAndEndTheJob) {
  const char* text = std::getenv("TRIREME_KILL_PLACES");
  for (Killing plan : mpirun_plans()) {
    if (!text) expect_named(GetParam(), plan);
    for (int place = 0; text && place < std::atoi(text); ++place) {
      plan.place = 3 * place + static_cast<int>(std::hash<std::string>()(plan.name()) % 3);
      plan.victim = place % (plan.within_host ? 2 : kRanks);
      expect_named(GetParam(), plan);
    }
    if (HasFailure()) return;
  }
}

TEST_P(KilledUnderMpirun, AnMpirunThatSeesItEndsAll) {
  const MpirunEnd outcome = mpirun(GetParam(), {"mpi", "messages", "ring", false, 7, 1}, true);
  EXPECT_NE(outcome.exit_code, 0) << outcome.describe();
  EXPECT_LT(outcome.took, std::chrono::seconds(15)) << outcome.describe();
}

std::vector<std::string> all_mpis() {
  std::vector<std::string> names;
  std::istringstream list(TRIREME_MPIS);
  for (std::string name; std::getline(list, name, ',');) names.push_back(name);
  return names;
}
INSTANTIATE_TEST_SUITE_P(Every, KilledUnderMpirun, ::testing::ValuesIn(all_mpis()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace trireme
