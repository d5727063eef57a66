// Programs under every installed mpirun: one job, the right exit code, and refusals.
#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <set>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "tests/conformance/job/own_clock.h"
#include "trireme/base/error.h"
#include "trireme/job.h"
#include "trireme/kernel/tree_sum.h"
#include "trireme/testing/process_bodies.h"

namespace trireme {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

struct Outcome {
  int exit_code = -1;
  std::string text;
  std::chrono::nanoseconds took{};
};

// Runs this program under mpirun, as the process `body`. `variables`: "NAME=value NAME=value".
Outcome mpirun(const std::string& mpi, int ranks, const std::string& body,
               const std::string& variables = {}, const std::string& argument = {}) {
  const std::string program = std::filesystem::read_symlink("/proc/self/exe").string();
  const std::string command =
      "OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 TRIREME_TEST_PROCESS=" + body +
      " TRIREME_TIMEOUT=10 " + variables + " timeout -k 5 50 mpirun." + mpi + " -n " +
      std::to_string(ranks) + (mpi == "openmpi" ? " --oversubscribe " : " ") + program + " " +
      argument + " 2>&1";
  Outcome outcome;
  const TimePoint start = steady_now();
  FILE* const pipe = popen(command.c_str(), "r");
  char line[4096];
  while (std::fgets(line, sizeof line, pipe)) outcome.text += line;
  const int status = pclose(pipe);
  outcome.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  outcome.took = steady_now() - start;
  return outcome;
}

std::vector<std::string> all_mpis() {
  std::vector<std::string> names;
  std::string rest = TRIREME_MPIS;
  for (std::size_t end = 0; end != rest.npos; rest = rest.substr(end + 1)) {
    names.push_back(rest.substr(0, end = rest.find(',')));
    if (end == rest.npos) break;
  }
  return names;
}

class Mpirun : public ::testing::TestWithParam<std::string> {};

TRIREME_PROCESS(sums) {  // argv[1]: the expected transport; argv[2]: ranks per host
  const char* const rank = std::getenv("OMPI_COMM_WORLD_RANK") ? std::getenv("OMPI_COMM_WORLD_RANK")
                                                               : std::getenv("PMI_RANK");
  const std::string name = "host" + std::to_string(std::atoi(rank) / std::atoi(argv[2]));
  setenv("TRIREME_HOST", name.c_str(), 1);
  Job job(argc, argv);
  if (job.world().transport_name() != argv[1]) return 3;
  if (job.rank() != std::atoi(rank)) return 4;
  for (const std::size_t count : {1u, 1000u, 300000u}) {
    std::vector<double> x(count, job.rank() + 1), y(count, 1);
    all_reduce(job.world(), x, Sum);
    all_reduce(job.host(), y, Sum);
    if (x != std::vector<double>(count, job.size() * (job.size() + 1) / 2)) return 5;
    if (y != std::vector<double>(count, job.local_size())) return 6;
  }
  std::printf("rank %d of %d is done\n", job.rank(), job.size());
  return 0;
}

TEST_P(Mpirun, RanksAreOneJobOverEveryTransport) {
  struct Case {
    const char *wanted, *got, *per_host;
    int ranks;
  };
  for (const Case& one : {Case{"auto", "shm", "9", 4}, Case{"tcp", "tcp", "9", 3},
                          Case{"mpi", "mpi", "9", 3}, Case{"auto", "mixed", "2", 3}}) {
    const Outcome outcome =
        mpirun(GetParam(), one.ranks, "sums", std::string("TRIREME_COMM_TRANSPORT=") + one.wanted,
               std::string(one.got) + " " + one.per_host);
    EXPECT_EQ(outcome.exit_code, 0) << one.wanted << ": " << outcome.text;
    for (int rank = 0; rank < one.ranks; ++rank) {
      EXPECT_THAT(outcome.text, HasSubstr("rank " + std::to_string(rank) + " of " +
                                          std::to_string(one.ranks) + " is done"));
    }
  }
}

// The sockets of this process that listen beyond loopback, by their addresses in /proc.
std::vector<std::string> listening() {
  std::set<std::string> own;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code closed;
    own.insert(std::filesystem::read_symlink(entry.path(), closed).string());
  }
  std::vector<std::string> found;
  for (const char* table : {"/proc/net/tcp", "/proc/net/tcp6"}) {
    std::ifstream file(table);
    std::string line, number, address, remote, state, skipped, inode;
    std::getline(file, line);
    while (std::getline(file, line)) {
      std::istringstream words(line);
      words >> number >> address >> remote >> state;
      for (int i = 0; i < 5; ++i) words >> skipped;
      words >> inode;
      const std::string host = address.substr(0, address.find(':'));
      const bool loopback = host.ends_with("0100007F") ||  // also as ::ffff:127.0.0.1
                            host == "00000000000000000000000001000000";
      if (state == "0A" && !loopback && own.contains("socket:[" + inode + "]"))
        found.push_back(address + " " + inode);
    }
  }
  return found;
}

TRIREME_PROCESS(listens) {
  const auto before = listening();  // opened by mpirun
  Job job(argc, argv);
  barrier(job.world());
  for (const std::string& one : listening()) {
    if (std::find(before.begin(), before.end(), one) == before.end())
      std::printf("listens on %s\n", one.c_str());
  }
  std::printf("looked\n");
  barrier(job.world());
  return 0;
}

TEST_P(Mpirun, RanksOfOneHostListenOnLoopbackAlone) {
  for (const char* transport : {"shm", "tcp", "mpi"}) {
    const Outcome outcome =
        mpirun(GetParam(), 2, "listens", std::string("TRIREME_COMM_TRANSPORT=") + transport);
    EXPECT_EQ(outcome.exit_code, 0) << outcome.text;
    EXPECT_THAT(outcome.text, AllOf(HasSubstr("looked"), Not(HasSubstr("listens on"))));
  }
}

#ifdef TRIREME_TIME_NAMESPACES
TRIREME_PROCESS(clocks) {
  const char* const rank = std::getenv("OMPI_COMM_WORLD_RANK") ? std::getenv("OMPI_COMM_WORLD_RANK")
                                                               : std::getenv("PMI_RANK");
  test::enter_own_clock(argc, argv, std::atoi(rank));
  const auto trace = std::make_shared<observe::Trace>();
  Job job(argc, argv, {.trace = trace});
  return test::check_clocks(job, *trace);
}

TEST_P(Mpirun, ClocksAreMeasured) {
  const Outcome outcome = mpirun(GetParam(), 3, "clocks", "TRIREME_COMM_TRANSPORT=mpi");
  EXPECT_EQ(outcome.exit_code, 0) << outcome.text;
  EXPECT_THAT(outcome.text, HasSubstr("mpi: clocks to"));
}
#endif

TEST_P(Mpirun, TheLibraryOfAnotherMpiIsRefusedWithBothNumbers) {
  for (const std::string& other : all_mpis()) {
    if (other == GetParam()) continue;
    const Outcome outcome = mpirun(
        GetParam(), 3, "sums",
        "TRIREME_MPI_LIBRARY=" TRIREME_MPI_FOLDER "/libtrireme_mpi_" + other + ".so", "shm 9");
    EXPECT_EQ(outcome.exit_code, 2) << outcome.text;
    EXPECT_THAT(outcome.text, HasSubstr("started 3 processes, but 1 joined through "));
    EXPECT_THAT(outcome.text, HasSubstr("libtrireme_mpi_" + other + ".so"));
    EXPECT_THAT(outcome.text, HasSubstr("make mpi MPICC="));
  }
}

TEST_P(Mpirun, ABuildWithoutMpiSaysSo) {
  const Outcome outcome =
      mpirun(GetParam(), 2, "sums", "TRIREME_MPI_LIBRARY=/nowhere/libtrireme_mpi.so", "shm 9");
  EXPECT_EQ(outcome.exit_code, 2) << outcome.text;
  EXPECT_THAT(outcome.text, HasSubstr("cannot open /nowhere/libtrireme_mpi.so"));
}

TRIREME_PROCESS(throws) {
  Job job(argc, argv);
  barrier(job.world());
  if (job.rank() == 1) throw std::out_of_range("no such batch");
  std::vector<float> x(100000);
  for (;;) all_reduce(job.world(), x, Sum);
}

TEST_P(Mpirun, AnExceptionEndsAllWithItsCode) {
  for (const char* transport : {"shm", "mpi"}) {
    const Outcome outcome =
        mpirun(GetParam(), 3, "throws", std::string("TRIREME_COMM_TRANSPORT=") + transport);
    EXPECT_EQ(outcome.exit_code, 20) << outcome.text;
    EXPECT_THAT(outcome.text, HasSubstr("rank 1 threw std::out_of_range: no such batch"));
    EXPECT_LT(outcome.took, std::chrono::seconds(10)) << outcome.text;
  }
}

TRIREME_PROCESS(killed) {
  Job job(argc, argv);
  barrier(job.world());
  if (job.rank() == 2) raise(SIGKILL);
  std::vector<float> x(100000);
  for (;;) all_reduce(job.world(), x, Sum);
}

TEST_P(Mpirun, AKilledRankEndsAll) {
  for (const char* transport : {"shm", "mpi"}) {
    const Outcome outcome =
        mpirun(GetParam(), 3, "killed", std::string("TRIREME_COMM_TRANSPORT=") + transport);
    EXPECT_NE(outcome.exit_code, 0) << outcome.text;
    EXPECT_LT(outcome.took, std::chrono::seconds(15)) << outcome.text;
  }
}

constexpr comm::OpOptions kNative{.algorithm = "mpi-native"};

// Rank r gives r + 2 in all `count` elements; the result's bits do not depend on the order.
template <class T>
bool native_gives(Job& job, ReduceOp op, std::size_t count, T expected) {
  std::vector<T> x(count, static_cast<T>(job.rank() + 2));
  job.world().all_reduce(Buffer::of(std::span(x)), op, kNative).wait();
  return x == std::vector<T>(count, expected);
}

TRIREME_PROCESS(native) {  // 3 ranks: 2, 3, 4
  Job job(argc, argv, {.reproducible = false});
  const auto all = [&]<class T>(T) {
    for (const std::size_t count : {1u, 1000u, 1'100'000u})
      if (!native_gives<T>(job, Sum, count, 9) || !native_gives<T>(job, Min, count, 2) ||
          !native_gives<T>(job, Max, count, 4) || !native_gives<T>(job, Product, count, 24))
        return false;
    return true;
  };
  if (!all(double()) || !all(float()) || !all(std::int64_t()) || !all(std::int32_t()) ||
      !all(std::uint8_t()))
    return 3;
  if (!native_gives<float>(job, Mean, 5000, 3)) return 4;
  // Among other calls, with several in progress; and with fewer leaves on rank 2.
  std::vector<float> a(300'000, 1), b(300'000, 1), own(100, float(job.rank())), every(300);
  const std::array works = {
      job.world().all_reduce(Buffer::of(std::span(a)), Sum, kNative),
      job.world().all_gather(Buffer::of(std::span(own)), Buffer::of(std::span(every))),
      job.world().all_reduce(Buffer::of(std::span(b)), Sum, kNative)};
  Work::all(works).wait();
  if (a != std::vector<float>(300'000, 3) || b != a || every[299] != 2) return 5;
  constexpr std::uint32_t kLeaves = 8;
  std::vector<std::vector<float>> leaves;
  std::vector<comm::Term> terms;
  for (const auto& node :
       kernel::maximal_nodes(kernel::contiguous_share(kLeaves, 3, job.rank()), kLeaves)) {
    leaves.emplace_back(100, float(node.count));
    terms.push_back({Buffer::of(std::span(leaves.back())), node.first, node.count});
  }
  std::vector<float> sum(100);
  job.world().all_reduce(terms, kLeaves, Buffer::of(std::span(sum)), kNative).wait();
  if (sum != std::vector<float>(100, kLeaves)) return 6;
  std::printf("rank %d of %d is done\n", job.rank(), job.size());
  return 0;
}

TEST_P(Mpirun, MpisOwnAllReduceGivesEveryType) {
  const Outcome outcome = mpirun(GetParam(), 3, "native", "TRIREME_COMM_TRANSPORT=mpi");
  EXPECT_EQ(outcome.exit_code, 0) << outcome.text;
  for (const char* rank : {"rank 0", "rank 1", "rank 2"})
    EXPECT_THAT(outcome.text, HasSubstr(std::string(rank) + " of 3 is done"));
}

// The job's default algorithm, which groups and 16-bit floats do not use. argv[1]: reproducible,
// "yes" or "no".
TRIREME_PROCESS(native_default) {
  Job job(argc, argv, {.algorithm = "mpi-native", .reproducible = std::string(argv[1]) == "yes"});
  std::vector<BFloat16> halves(5000, BFloat16{0x3F80});  // 1
  all_reduce(job.world(), halves, Sum);
  if (halves[4999].bits != 0x4000) return 3;  // 2
  comm::SparseRows row{.indices = {3}, .width = 5000, .num_rows = 9, .dtype = DType::BF16};
  for (int i = 0; i < 5000; ++i)
    row.values.insert(row.values.end(), {std::byte{0x80}, std::byte{0x3F}});
  const comm::SparseRows rows =
      sparse_all_reduce(job.world(), row, Sum, {.way = comm::SparseWay::Dense});
  if (rows.row<BFloat16>(0)[4999].bits != 0x4000) return 6;
  const auto group = job.world().split(0, job.rank());
  std::vector<double> x(5000, 1);
  all_reduce(*group, x, Sum);
  all_reduce(job.world(), x, Sum);
  if (x != std::vector<double>(5000, 4)) return 4;
  try {
    group->all_reduce(Buffer::of(std::span(x)), Sum, kNative).wait();
  } catch (const ConfigError& error) {
    std::printf("rank %d: %s\n", job.rank(), error.what());
    return 0;
  }
  return 5;
}

TEST_P(Mpirun, MpisOwnAllReduceAsTheJobsDefault) {
  const Outcome outcome =
      mpirun(GetParam(), 2, "native_default", "TRIREME_COMM_TRANSPORT=mpi", "no");
  EXPECT_EQ(outcome.exit_code, 0) << outcome.text;
  EXPECT_THAT(outcome.text, HasSubstr("is a group of the job, and MPI reduces over the whole"));
  const Outcome refused =
      mpirun(GetParam(), 2, "native_default", "TRIREME_COMM_TRANSPORT=mpi", "yes");
  EXPECT_EQ(refused.exit_code, 2) << refused.text;
  EXPECT_THAT(refused.text, HasSubstr("this job is reproducible"));
  const Outcome shm = mpirun(GetParam(), 2, "native_default", "TRIREME_COMM_TRANSPORT=shm", "no");
  EXPECT_EQ(shm.exit_code, 2) << shm.text;
  EXPECT_THAT(shm.text, HasSubstr("it needs transport mpi, and world has shm"));
}

TRIREME_PROCESS(native_killed) {
  Job job(argc, argv, {.reproducible = false});
  std::vector<float> x(3'000'000);
  for (int call = 0;; ++call) {
    const Work work = job.world().all_reduce(Buffer::of(std::span(x)), Sum, kNative);
    if (job.rank() == 2 && call == 5) raise(SIGKILL);
    work.wait();
  }
}

TEST_P(Mpirun, ARankKilledInMpisOwnAllReduceEndsAll) {
  const Outcome outcome = mpirun(GetParam(), 3, "native_killed", "TRIREME_COMM_TRANSPORT=mpi");
  EXPECT_NE(outcome.exit_code, 0) << outcome.text;
  EXPECT_LT(outcome.took, std::chrono::seconds(15)) << outcome.text;
}

TRIREME_PROCESS(caller) {  // argv[1]: the caller's library; argv[2]: its thread level
  void* const library = dlopen(argv[1], RTLD_NOW | RTLD_GLOBAL);
  if (!library) return 9;
  const auto function = [&](const char* name) {
    return reinterpret_cast<int (*)(int)>(dlsym(library, name));
  };
  const bool enough = std::string(argv[2]) == "serialized";
  const int world_rank =
      function("caller_start")(function(enough ? "caller_serialized" : "caller_single")(0));
  const auto communicator =
      reinterpret_cast<const void* (*)()>(dlsym(library, "caller_communicator"))();
  for (int time = 0; time < 2; ++time) {  // one after the other
    Job job{MpiComm{communicator}, {.transport = time == 0 ? "auto" : "mpi"}};
    if (job.size() != 2 || job.rank() != 1 - world_rank / 2) return 3;
    std::vector<float> x(5000, float(world_rank));
    all_reduce(job.world(), x, Sum);
    if (x != std::vector<float>(5000, world_rank % 2 == 0 ? 2.0f : 4.0f)) return 4;
  }
  if (!function("caller_works")(0)) return 5;
  function("caller_finish")(0);
  std::printf("world rank %d is done\n", world_rank);
  return 0;
}

TEST_P(Mpirun, AJobOfACallersCommunicator) {
  const std::string library = TRIREME_MPI_FOLDER "/libcaller_" + GetParam() + ".so ";
  const Outcome outcome = mpirun(GetParam(), 4, "caller", "", library + "serialized");
  EXPECT_EQ(outcome.exit_code, 0) << outcome.text;
  for (int rank = 0; rank < 4; ++rank) {
    EXPECT_THAT(outcome.text, HasSubstr("world rank " + std::to_string(rank) + " is done"));
  }
  const Outcome refused = mpirun(GetParam(), 4, "caller", "", library + "single");
  EXPECT_EQ(refused.exit_code, 2) << refused.text;
  EXPECT_THAT(refused.text, HasSubstr("MPI_THREAD_SERIALIZED"));
}

INSTANTIATE_TEST_SUITE_P(Every, Mpirun, ::testing::ValuesIn(all_mpis()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace trireme
