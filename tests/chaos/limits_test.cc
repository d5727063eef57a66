// Limits reached when an arena is made; and communicators made and dropped again and again.
// tests/chaos/limits.full (label soak) makes 10,000 of them.
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <vector>

#include "tests/chaos/exchange.h"
#include "trireme/base/error.h"
#include "trireme/comm/collectives.h"
#include "trireme/comm/communicator_options.h"
#include "trireme/job.h"
#include "trireme/net/connect.h"
#include "trireme/observe/machine.h"
#include "trireme/testing/run_processes.h"

namespace trireme {
namespace {

using std::chrono::seconds;
using testing::ProcessOptions;
using testing::ProcessRun;
using testing::run_processes;

// Sanitizers keep freed memory for a while; they report leaks themselves.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr long kMostKilobytes = 1 << 20;
#else
constexpr long kMostKilobytes = 8192;
#endif
constexpr std::size_t kArena = std::size_t{256} << 20;

std::size_t address_space() {  // in bytes
  std::size_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  return pages * 4096;
}

void limit(int resource, std::size_t bytes) {
  const rlimit both{bytes, bytes};
  setrlimit(static_cast<__rlimit_resource>(resource), &both);
}

// Makes only this process see a cgroup that has room for half of an arena.
bool enter_small_cgroup() {
  if (unshare(CLONE_NEWNS) != 0 || mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
      mount("tmpfs", "/sys/fs/cgroup", "tmpfs", 0, nullptr) != 0) {
    return false;
  }
  const std::filesystem::path root = "/sys/fs/cgroup";
  std::filesystem::create_directory(root / "memory");
  for (const char* limit : {"memory.max", "memory/memory.limit_in_bytes"}) {
    std::ofstream(root / limit) << 2 * kArena;
  }
  for (const char* used : {"memory.current", "memory/memory.usage_in_bytes"}) {
    std::ofstream(root / used) << 2 * kArena - kArena / 2;
  }
  return true;
}

// A real control group without room for an arena; removed by the destructor.
class SmallGroup {
 public:
  explicit SmallGroup(const std::string& kind) {
    if (kind != "group") return;
    const std::filesystem::path first = "/sys/fs/cgroup/memory", second = "/sys/fs/cgroup";
    const bool old = std::filesystem::exists(first);
    folder_ = (old ? first : second) / ("trireme-test-" + std::to_string(getpid()));
    std::filesystem::create_directory(folder_);
    std::ofstream(folder_ / (old ? "memory.limit_in_bytes" : "memory.max")) << kArena - (16 << 20);
  }
  ~SmallGroup() {
    if (!folder_.empty()) std::filesystem::remove(folder_);
  }
  SmallGroup(const SmallGroup&) = delete;
  std::string variable() const { return "TRIREME_TEST_GROUP=" + folder_.string(); }

 private:
  std::filesystem::path folder_;
};

bool enter_group() {
  std::ofstream tasks(std::string(std::getenv("TRIREME_TEST_GROUP")) + "/cgroup.procs");
  return static_cast<bool>(tasks << getpid() << std::flush);
}

// arguments: the resource of which rank 1 has too little
TRIREME_PROCESS(limited) {
  const bool second = std::string(std::getenv("TRIREME_RANK")) == "1";
  if (second && std::string(argv[1]) == "cgroup" && !enter_small_cgroup()) return 9;
  if (second && std::string(argv[1]) == "group" && !enter_group()) return 9;
  Job job(argc, argv);
  barrier(job.world());
  const std::string what = argv[1];
  std::size_t bytes = kArena;
  if (job.rank() == 1) {
    // Room for half of its own arena, or for its own and half of the peer's.
    if (what == "own") limit(RLIMIT_AS, address_space() + kArena / 2);
    if (what == "peer's") limit(RLIMIT_AS, address_space() + kArena * 3 / 2);
    if (what == "file") limit(RLIMIT_FSIZE, kArena / 2);
  }
  if (what == "machine") bytes = 2 * static_cast<std::size_t>(observe::memory_total());
  comm::Arena arena = job.world().allocate(bytes);
  job.world().all_reduce(arena.buffer(0, 1000, DType::F32), Sum).wait();
  std::printf("summed\n");
  return 0;
}

class Limits : public ::testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(All, Limits, ::testing::Values("own", "peer's", "file", "machine"));
#ifdef TRIREME_CAN_MOUNT
INSTANTIATE_TEST_SUITE_P(Mounts, Limits, ::testing::Values("cgroup"));
#endif
#ifdef TRIREME_CAN_GROUP
INSTANTIATE_TEST_SUITE_P(Groups, Limits, ::testing::Values("group"));
#endif

TEST_P(Limits, AnArenaThatDoesNotFitIsAClearError) {
  ProcessOptions options;
  options.transport = "shm";
  options.arguments = {GetParam()};
  const SmallGroup group(GetParam());
  options.environment = {group.variable()};
  const ProcessRun run = run_processes(2, "limited", options);
  EXPECT_EQ(run.exit_code, 170) << run.describe();
  EXPECT_NE(run.last_line.find("memory"), std::string::npos) << run.describe();
  EXPECT_NE(run.last_line.find(GetParam() == "machine" ? "rank " : "rank 1"), std::string::npos)
      << run.describe();
  EXPECT_NE(run.last_line.find("Check the limits"), std::string::npos) << run.describe();
  EXPECT_LT(run.took, seconds(5)) << run.describe();
  for (const auto& rank : run.ranks) EXPECT_EQ(rank.out, "") << run.describe();
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // their allocators abort
// Rank 1 has no room for the partial sums that it receives.
TRIREME_PROCESS(short_of_scratch) {
  Job job(argc, argv);
  std::vector<float> all(16 << 20), own(all.size() / 2);
  barrier(job.world());
  if (job.rank() == 1) limit(RLIMIT_AS, address_space() + (2 << 20));
  reduce_scatter(job.world(), all, own, Sum);
  return 0;
}

TEST(Memory, ACallThatFindsNoMemoryEndsEveryRank) {
  ProcessOptions options;
  options.transport = "tcp";
  options.environment = {"MALLOC_ARENA_MAX=1"};  // each has 64 MiB of the address space in store
  const ProcessRun run = run_processes(2, "short_of_scratch", options);
  ASSERT_EQ(run.ranks.size(), 2u);
  EXPECT_EQ(run.ranks[1].exit_code, 170) << run.describe();
  EXPECT_EQ(run.ranks[0].exit_code, 160) << run.describe();
  EXPECT_NE(run.ranks[0].err.find("peer 1"), std::string::npos) << run.describe();
}
#endif

struct Resources {
  long descriptors = 0, mappings = 0, resident = 0;
};

Resources held() {
  Resources now;
  for ([[maybe_unused]] const auto& one : std::filesystem::directory_iterator("/proc/self/fd")) {
    ++now.descriptors;
  }
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) ++now.mappings;
  now.resident = observe::memory_bytes();
  return now;
}

// Tells the transport that there are two ranks per host.
std::string host_of(int rank) { return "host " + std::to_string(rank / 2); }

// A group over its own connections, or over the world's.
std::shared_ptr<comm::Communicator> make_group(Job& job, bool connects, int cycle) {
  if (!connects) return job.world().split(0, cycle % 2 == 0 ? job.rank() : -job.rank());
  const net::ConnectOptions options{.rank = job.rank(), .size = job.size(), .secret = "cycles"};
  const auto exchange = test::exchange_over(job.world());
  std::vector<std::string> hosts;
  for (int rank = 0; rank < job.size(); ++rank) hosts.push_back(host_of(rank));
  const std::string_view kind = job.world().transport_name();
  auto transport = kind == "shm"   ? net::connect_shm(job.waiter(), options, exchange)
                   : kind == "tcp" ? net::connect_tcp(job.waiter(), options, exchange)
                                   : net::connect_mixed(job.waiter(), options, exchange, hosts);
  return std::make_shared<comm::Communicator>(std::move(transport), comm::CommunicatorOptions());
}

// arguments: transport, whether each group connects anew, number of cycles
TRIREME_PROCESS(cycles) {
  const std::string transport = argv[1];
  if (transport == "mixed") {
    setenv("TRIREME_HOST", host_of(std::atoi(std::getenv("TRIREME_RANK"))).c_str(), 1);
  }
  Job job(argc, argv);
  if (job.world().transport_name() != transport) return 3;
  const bool connects = std::string(argv[2]) == "connects";
  const int cycles = std::atoi(argv[3]);
  Resources before;
  for (int i = -100; i < cycles; ++i) {
    if (i == 0) before = held();
    const auto group = make_group(job, connects, i);
    comm::Arena arena = group->allocate(1 << 16);
    std::vector<float> x(3000, 1.0f);
    group->all_reduce(arena.buffer(0, 1000, DType::F32), Sum).wait();
    all_reduce(*group, x, Sum);
    if (x[7] != static_cast<float>(job.size())) return 1;
  }
  barrier(job.world());
  const Resources after = held();
  std::printf("%ld %ld %ld\n", after.descriptors - before.descriptors,
              after.mappings - before.mappings, (after.resident - before.resident) >> 10);
  return 0;
}

class Cycles : public ::testing::TestWithParam<std::tuple<const char*, const char*>> {};
INSTANTIATE_TEST_SUITE_P(Transports, Cycles,
                         ::testing::Combine(::testing::Values("shm", "tcp", "mixed"),
                                            ::testing::Values("splits", "connects")));

TEST_P(Cycles, LeakNothing) {
  const char* text = std::getenv("TRIREME_COMMUNICATORS");
  const auto [transport, way] = GetParam();
  ProcessOptions options;
  options.transport = transport;
  options.time_limit = seconds(text ? 600 : 60);
  options.arguments = {transport, way, text ? text : "300"};
  const ProcessRun run = run_processes(3, "cycles", options);
  ASSERT_EQ(run.exit_code, 0) << run.describe();
  for (const auto& rank : run.ranks) {
    long descriptors = 0, mappings = 0, kilobytes = 0;
    ASSERT_EQ(std::sscanf(rank.out.c_str(), "%ld %ld %ld", &descriptors, &mappings, &kilobytes), 3);
    EXPECT_LE(descriptors, 4) << run.describe();
    EXPECT_LE(mappings, 8) << run.describe();
    EXPECT_LE(kilobytes, kMostKilobytes) << run.describe();
  }
}

}  // namespace
}  // namespace trireme
