// A rank killed at its n-th send, receive, notification or read of a peer's memory: in each phase
// (header, data in the header, data ahead of agreement, each round) of each algorithm over each
// transport; and killed by a peer in the middle of that peer's n-th read of its memory. The others
// get PeerLost within 2 s from the transport alone, without the launcher's word, and what calls
// have given before is right.
//
// Here one place of each pair; tests/chaos/kill_matrix.full (label soak) takes 40 of each.
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <array>
#include <cstdlib>

#include "tests/chaos/checked_calls.h"
#include "tests/chaos/exchange.h"
#include "trireme/base/error.h"
#include "trireme/job.h"
#include "trireme/launch/membership.h"
#include "trireme/net/connect.h"
#include "trireme/testing/faulty_transport.h"
#include "trireme/testing/run_processes.h"

namespace trireme {
namespace {

using comm::Communicator;

using std::chrono::seconds;
using testing::FaultyTransport;
using testing::ProcessOptions;
using testing::ProcessRun;
using testing::run_processes;
using testing::send_signal;

constexpr int kRanks = 3, kVictim = 1, kReader = 0;

// Where the victim dies:
//   messages   at its n-th call; no rank reads another's memory
//   moves      at its n-th call, where ranks read one another's memory
//   read       by the reader, in its n-th half of a read of the victim's memory
struct Plan {
  std::string transport, way, what;
  int place = 0;
};

std::ostream& operator<<(std::ostream& out, const Plan& plan) {
  return out << plan.what << " over " << plan.transport << ", " << plan.way << ", place "
             << plan.place;
}

std::shared_ptr<net::Transport> connect(Job& job, const std::string& transport) {
  const net::ConnectOptions options{.rank = job.rank(), .size = job.size(), .secret = "matrix"};
  const auto exchange = test::exchange_over(job.world());
  if (transport == "tcp") return net::connect_tcp(job.waiter(), options, exchange);
  if (transport == "mixed") {
    return net::connect_mixed(job.waiter(), options, exchange, {"one", "one", "two"});
  }
  return net::connect_shm(job.waiter(), options, exchange);
}

// Kills the victim at the planned place of this rank's.
class Killer {
 public:
  Killer(Job& job, Plan plan) : rank_(job.rank()), plan_(std::move(plan)) {
    std::vector<std::int64_t> pid{getpid()}, pids(static_cast<std::size_t>(job.size()));
    all_gather(job.world(), pid, pids);
    victim_ = static_cast<pid_t>(pids[kVictim]);
  }
  void start() { left_ = plan_.place; }
  void at(FaultyTransport::Call call, int peer) {
    const bool read = call == FaultyTransport::Call::Read;
    const bool mine =
        plan_.way == "read" ? rank_ == kReader && read && peer == kVictim : rank_ == kVictim;
    if (left_ < 0 || !mine || left_-- > 0) return;
    send_signal(victim_, SIGKILL);
    while (launch::process_state(victim_) != 'Z' && launch::process_state(victim_) != '\0') {
    }
  }

 private:
  const int rank_;
  const Plan plan_;
  pid_t victim_ = 0;
  long left_ = -1;  // not counting yet
};

// arguments: transport, way, algorithm or collective, number of the place
TRIREME_PROCESS(dies) {
  Job job(argc, argv);
  const Plan plan{argv[1], argv[2], argv[3], std::atoi(argv[4])};
  Killer killer(job, plan);
  auto faulty = std::make_shared<FaultyTransport>(
      connect(job, plan.transport),
      [&killer](FaultyTransport::Call call, int peer) { killer.at(call, peer); },
      FaultyTransport::Options{.reads = plan.way != "messages"});
  Communicator group(std::move(faulty), {});
  test::CheckedCalls calls(group, plan.what);
  group.barrier().wait();
  job.waiter()->run([&] { killer.start(); });
  TimePoint start{};
  try {
    for (int step = 0; step < 1000; ++step) {
      start = steady_now();
      if (!calls.step(step)) std::printf("wrong data in step %d\n", step);
    }
    std::printf("nobody died\n");
  } catch (const PeerLost&) {
    std::printf("%s\n", steady_now() - start < seconds(2) ? "lost in time" : "lost too late");
    throw;
  }
  return 0;
}

void expect_noticed(const Plan& plan) {
  SCOPED_TRACE(plan);
  ProcessOptions options;
  options.timeout = seconds(20);
  options.time_limit = seconds(30);
  options.arguments = {plan.transport, plan.way, plan.what, std::to_string(plan.place)};
  const ProcessRun run = run_processes(kRanks, "dies", options);
  EXPECT_EQ(run.exit_code, 137) << run.describe();
  EXPECT_EQ(run.last_line.find("rank 1 "), 0u) << run.describe();
  for (const int survivor : {0, 2}) {
    EXPECT_EQ(run.ranks[survivor].out, "lost in time\n") << run.describe();
    EXPECT_EQ(run.ranks[survivor].exit_code, 160) << run.describe();
  }
}

std::vector<Plan> plans() {
  const std::vector<const char*> collectives = {
      "broadcast", "all_gather", "reduce_scatter", "reduce", "gather", "scatter", "all_to_all"};
  std::vector<Plan> all;
  for (const char* transport : {"shm", "tcp", "mixed"}) {
    for (const char* algorithm : {"naive", "ring", "all_pairs", "central", "tree", "double_tree",
                                  "halving_doubling", "hierarchical", "barrier"}) {
      all.push_back({transport, "messages", algorithm});
    }
    for (const char* what : collectives) all.push_back({transport, "messages", what});
  }
  all.push_back({"shm", "messages", "direct"});
  for (const char* what : collectives) {
    all.push_back({"shm", "moves", what});
    all.push_back({"shm", "read", what});
  }
  return all;
}

class KillMatrix : public ::testing::TestWithParam<Plan> {};
INSTANTIATE_TEST_SUITE_P(Pairs, KillMatrix, ::testing::ValuesIn(plans()), [](const auto& info) {
  return info.param.transport + "_" + info.param.way + "_" + info.param.what;
});

TEST_P(KillMatrix, TheOthersNoticeWithin2s) {
  const char* text = std::getenv("TRIREME_KILL_PLACES");
  Plan plan = GetParam();
  if (!text) {  // one place, another for each pair
    plan.place = static_cast<int>(std::hash<std::string>()(plan.what) % 17);
    return expect_noticed(plan);
  }
  for (plan.place = 0; plan.place < std::atoi(text); ++plan.place) {
    expect_noticed(plan);
    if (HasFailure()) return;
  }
}

}  // namespace
}  // namespace trireme
