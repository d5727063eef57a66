// A rank killed at its n-th send, receive or notification: in each phase (header, data in the
// header, data ahead of agreement, each round) of each algorithm over each transport. The others
// get PeerLost within 2 s from the transport alone, without the launcher's word.
//
// Here one place of each pair; tests/chaos/kill_matrix.full (label soak) takes 40 of each.
#include <gtest/gtest.h>
#include <signal.h>

#include <array>

#include <cstdlib>

#include "tests/chaos/exchange.h"
#include "trireme/base/error.h"
#include "trireme/job.h"
#include "trireme/net/connect.h"
#include "trireme/testing/faulty_transport.h"
#include "trireme/testing/run_processes.h"

namespace trireme {
namespace {

using comm::Communicator;

using std::chrono::seconds;
using testing::ProcessOptions;
using testing::ProcessRun;
using testing::run_processes;

constexpr int kRanks = 3, kVictim = 1;

// Small enough for the header, sent ahead of agreement, in pieces; in an arena where there is one.
void call(Communicator& group, const std::string& algorithm, std::vector<float>& x, Buffer arena,
          int step) {
  const std::size_t count = std::array{2u, 500u, 70'000u}[step % 3];
  const std::span<float> part = std::span(x).first(count);
  const comm::OpOptions options{.algorithm = algorithm};
  if (algorithm == "broadcast") return broadcast(group, part, step % kRanks);
  if (algorithm == "all_gather") {
    return all_gather(group, part.first(count / kRanks), part.first(count / kRanks * kRanks));
  }
  if (algorithm == "reduce_scatter") {
    return reduce_scatter(group, part.first(count / kRanks * kRanks), part.first(count / kRanks),
                          Sum);
  }
  if (algorithm == "barrier") return barrier(group);
  if (algorithm == "reduce") return reduce(group, part, part, Sum, step % kRanks);
  std::vector<float> other(count / kRanks * kRanks);
  const auto whole = part.first(other.size()), piece = part.first(other.size() / kRanks);
  if (algorithm == "gather") return gather(group, piece, other, step % kRanks);
  if (algorithm == "scatter") return scatter(group, other, piece, step % kRanks);
  if (algorithm == "all_to_all") return all_to_all(group, whole, other);
  if (step % 2 == 0) return all_reduce(group, part, Sum, options);
  arena.count = count;
  group.all_reduce(arena, Sum, options).wait();
}

// arguments: transport, algorithm, number of the call at which rank 1 dies
TRIREME_PROCESS(dies) {
  Job job(argc, argv);
  const std::string transport = argv[1], algorithm = argv[2];
  const net::ConnectOptions connect{.rank = job.rank(), .size = job.size(), .secret = "matrix"};
  const auto exchange = test::exchange_over(job.world());
  long left = -1;  // not counting yet
  auto inner = transport == "tcp" ? net::connect_tcp(job.waiter(), connect, exchange)
                                  : net::connect_shm(job.waiter(), connect, exchange);
  auto faulty = std::make_shared<testing::FaultyTransport>(std::move(inner), [&left] {
    if (left >= 0 && left-- == 0) raise(SIGKILL);
  });
  Communicator group(std::move(faulty), {});
  comm::Arena arena = group.allocate(70'000 * sizeof(float));
  std::vector<float> x(70'000, 1.0f);
  barrier(group);
  job.waiter()->run([&] { left = job.rank() == kVictim ? std::atol(argv[3]) : -1; });
  TimePoint start{};
  try {
    for (int step = 0; step < 1000; ++step) {
      start = steady_now();
      call(group, algorithm, x, arena.buffer(0, 0, DType::F32), step);
    }
    std::printf("nobody died\n");
  } catch (const PeerLost&) {
    std::printf("%s\n", steady_now() - start < seconds(2) ? "lost in time" : "lost too late");
    throw;
  }
  return 0;
}

void expect_noticed(const std::string& transport, const std::string& algorithm, int place) {
  SCOPED_TRACE(algorithm + " over " + transport + ", call " + std::to_string(place));
  ProcessOptions options;
  options.timeout = seconds(20);
  options.time_limit = seconds(30);
  options.arguments = {transport, algorithm, std::to_string(place)};
  const ProcessRun run = run_processes(kRanks, "dies", options);
  EXPECT_EQ(run.exit_code, 137) << run.describe();
  EXPECT_EQ(run.last_line.find("rank 1 "), 0u) << run.describe();
  for (const int survivor : {0, 2}) {
    EXPECT_EQ(run.ranks[survivor].out, "lost in time\n") << run.describe();
    EXPECT_EQ(run.ranks[survivor].exit_code, 160) << run.describe();
  }
}

struct Pair {
  std::string transport, algorithm;
};

std::vector<Pair> pairs() {
  std::vector<Pair> all;
  for (const char* transport : {"shm", "tcp"}) {
    for (const char* algorithm :
         {"naive", "ring", "all_pairs", "central", "tree", "double_tree", "halving_doubling",
          "hierarchical", "direct", "broadcast", "all_gather", "reduce_scatter", "reduce", "gather",
          "scatter", "all_to_all", "barrier"}) {
      const bool shared = std::string(algorithm) != "direct" || std::string(transport) == "shm";
      if (shared) all.push_back({transport, algorithm});
    }
  }
  return all;
}

class KillMatrix : public ::testing::TestWithParam<Pair> {};
INSTANTIATE_TEST_SUITE_P(Pairs, KillMatrix, ::testing::ValuesIn(pairs()), [](const auto& info) {
  return info.param.transport + "_" + info.param.algorithm;
});

TEST_P(KillMatrix, TheOthersNoticeWithin2s) {
  const char* text = std::getenv("TRIREME_KILL_PLACES");
  if (!text) {  // one place, another for each pair
    const int place = static_cast<int>(std::hash<std::string>()(GetParam().algorithm) % 17);
    return expect_noticed(GetParam().transport, GetParam().algorithm, place);
  }
  for (int place = 0; place < std::atoi(text); ++place) {
    expect_noticed(GetParam().transport, GetParam().algorithm, place);
    if (HasFailure()) return;
  }
}

}  // namespace
}  // namespace trireme
