// A rank killed in each phase (header, data in the header, data ahead of agreement, each round,
// reading and writing of a peer's memory) of each algorithm over each transport; each rank in turn.
// The others get PeerLost within 2 s from the transport alone, without the launcher, and the
// results of earlier calls are right.
//
// Takes one point of each pair; tests/chaos/kill_matrix.full (label soak) takes 40 of each. Over
// MPI: kill_mpirun_test.cc.
#include <gtest/gtest.h>

#include <cstdlib>
#include <set>

#include "tests/chaos/killing.h"
#include "trireme/comm/rounds/registry.h"

namespace trireme {
namespace {

using std::chrono::seconds;
using test::Killing, test::kRanks;
using testing::ProcessOptions;
using testing::ProcessRun;
using testing::run_processes;

std::shared_ptr<net::Transport> connect(Job& job, const std::string& transport) {
  net::ConnectOptions options{.rank = job.rank(), .size = job.size(), .secret = "matrix"};
  const auto exchange = test::exchange_over(job.world());
  if (transport == "tcp-sockets") options.sockets = 3;
  if (transport.starts_with("tcp")) return net::connect_tcp(job.waiter(), options, exchange);
  if (transport == "mixed") {
    return net::connect_mixed(job.waiter(), options, exchange, test::kHosts);
  }
  return net::connect_shm(job.waiter(), options, exchange);
}

TRIREME_PROCESS(dies) {
  Job job(argc, argv);
  const Killing plan = Killing::from(argv);
  test::call_until_killed(job, connect(job, plan.transport), plan);
}

void expect_noticed(const Killing& plan) {
  SCOPED_TRACE(plan);
  ProcessOptions options;
  options.timeout = seconds(20);
  options.time_limit = seconds(30);
  options.arguments = plan.arguments();
  const ProcessRun run = run_processes(kRanks, "dies", options);
  EXPECT_EQ(run.exit_code, 137) << run.describe();
  EXPECT_EQ(run.last_line.find("rank " + std::to_string(plan.victim) + " "), 0u) << run.describe();
  for (int survivor = 0; survivor < kRanks; ++survivor) {
    if (survivor == plan.victim) continue;
    EXPECT_EQ(run.ranks[survivor].out, "lost in time\n") << run.describe();
    EXPECT_EQ(run.ranks[survivor].exit_code, 160) << run.describe();
  }
}

std::vector<Killing> plans() {
  std::vector<Killing> all;
  const auto add = [&](const char* transport, const char* way, const std::vector<std::string>& of,
                       bool within_host = false) {
    for (const auto& what : of) all.push_back({transport, way, what, within_host});
  };
  for (const char* transport : {"shm", "tcp", "mixed"}) {
    for (const auto& some : {test::all_reduces(), test::movers(), test::other_rounds()}) {
      add(transport, "messages", some);
    }
    add(transport, "peer", test::all_reduces());
  }
  add("tcp-sockets", "messages", {"ring", "broadcast.binomial"});
  add("tcp-sockets", "peer", {"ring", "broadcast.binomial"});
  for (const auto& [transport, within_host] : {std::pair("shm", false), std::pair("mixed", true)}) {
    for (const char* way : {"messages", "moves", "peer"}) {
      add(transport, way, {"direct"}, within_host);
      if (way != std::string("messages")) add(transport, way, test::movers(), within_host);
    }
    add(transport, "read", test::readers(), within_host);
    add(transport, "touch", {"direct"}, within_host);
    add(transport, "touch", test::movers(), within_host);
  }
  return all;
}

class KillMatrix : public ::testing::TestWithParam<Killing> {};
INSTANTIATE_TEST_SUITE_P(Pairs, KillMatrix, ::testing::ValuesIn(plans()),
                         [](const auto& info) { return info.param.name(); });

TEST_P(KillMatrix, TheOthersNoticeWithin2s) {
  const char* text = std::getenv("TRIREME_KILL_PLACES");
  Killing plan = GetParam();
  const int victims = plan.within_host ? kRanks - 1 : kRanks;
  const auto take = [&](int place) {  // each place has the next rank as victim
    plan.place = place;
    plan.victim = place % victims;
    expect_noticed(plan);
  };
  if (!text) return take(static_cast<int>(std::hash<std::string>()(plan.name()) % 17));
  for (int place = 0; place < std::atoi(text) && !HasFailure(); ++place) take(place);
}

TEST(KillPlans, HoldEveryAlgorithmThereIs) {
  std::set<std::string> named;
  for (const Killing& plan : plans()) {
    if (plan.way == "messages") named.insert(plan.transport + " " + plan.what);
  }
  for (int kind = 0; kind <= static_cast<int>(comm::OpKind::AllToAll); ++kind) {
    for (const auto* entry : comm::algorithms_of(static_cast<comm::OpKind>(kind))) {
      const bool plain = entry->kind == comm::OpKind::AllReduce;
      const std::string what =
          (plain ? "" : std::string(comm::name_of(entry->kind)) + ".") + entry->name;
      for (const std::string transport : {"shm ", "tcp ", "mixed "}) {
        EXPECT_EQ(named.count(transport + what), 1u) << transport << what;
      }
    }
  }
}

}  // namespace
}  // namespace trireme
