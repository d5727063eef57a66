// A rank whose transport fails at its n-th send, receive, notification or read, over the simulated
// network, for every algorithm. The seed chooses the rank, the call and the order of events. No
// rank waits for ever (the network reports deadlocks), the others get an error that names the rank,
// and the results of earlier calls are right. A failing seed can be repeated.
//
// tests/chaos/simulated_faults.full (label soak) takes 300 seeds of each.
#include <gtest/gtest.h>

#include <cstdlib>
#include <random>

#include "tests/chaos/checked_calls.h"
#include "tests/chaos/killing.h"
#include "trireme/base/error.h"
#include "trireme/net/sim/sim_network.h"

namespace trireme {
namespace {

using testing::FaultyTransport;

// A fault drawn from a seed.
struct Fault {
  explicit Fault(std::uint64_t seed) {
    std::mt19937_64 random(seed);
    size = 2 + static_cast<int>(random() % 4);
    victim = static_cast<int>(random() % static_cast<std::uint64_t>(size));
    shared_memory = random() % 2 == 0;
    place = static_cast<int>(random() % (shared_memory ? 8 : 80));  // shared memory sends little
  }
  int size = 2, victim = 0, place = 0;
  bool shared_memory = true;
};

struct Ended {
  int code = 0, peer = -1;  // 0: all its calls succeeded
  std::string sentence;
};

Ended run_rank(net::SimNetwork& network, const std::string& what, const Fault& fault, int rank) {
  Ended ended;
  try {
    const auto inner = network.transport(rank);
    int left = rank == fault.victim ? fault.place : -1;
    const auto faulty = std::make_shared<FaultyTransport>(inner, [&](FaultyTransport::Call, int) {
      if (left < 0 || left-- > 0) return;
      inner->abort(std::make_exception_ptr(ResourceError("the cable is cut")));
    });
    comm::Communicator world(faulty, {});
    test::CheckedCalls calls(world, what);
    for (int step = 0; step < 400; ++step) {
      if (!calls.step(step)) ADD_FAILURE() << "wrong data on rank " << rank << ", step " << step;
    }
  } catch (const Error& error) {
    ended = {static_cast<int>(error.code()), error.peer(), error.what()};
  }
  return ended;
}

// Returns false if the victim made all of its calls before the fault: shared memory sends little.
bool breaks_as_it_should(const std::string& what, std::uint64_t seed) {
  const Fault fault(seed);
  SCOPED_TRACE(what + ", seed " + std::to_string(seed) + ": rank " + std::to_string(fault.victim) +
               " of " + std::to_string(fault.size) + " at place " + std::to_string(fault.place));
  net::SimNetwork network(fault.size, {.seed = seed, .shared_memory = fault.shared_memory});
  std::vector<Ended> ended(static_cast<std::size_t>(fault.size));
  network.run([&](int rank) {
    ended[static_cast<std::size_t>(rank)] = run_rank(network, what, fault, rank);
  });
  if (ended[static_cast<std::size_t>(fault.victim)].code == 0) {
    for (const Ended& one : ended) EXPECT_EQ(one.code, 0) << one.sentence;
    return false;
  }
  const std::string victim = "rank " + std::to_string(fault.victim);
  int named = 0;
  for (int rank = 0; rank < fault.size; ++rank) {
    const Ended& one = ended[static_cast<std::size_t>(rank)];
    if (rank == fault.victim) {
      EXPECT_EQ(one.code, 170) << one.sentence;
      continue;
    }
    // PeerLost, or the victim's own error that it sent when it left, with its code. A rank that
    // knows may leave before the next one knows; that one then names the rank it missed.
    EXPECT_TRUE(one.code == 160 || one.code == 170) << "rank " << rank << ": " << one.sentence;
    EXPECT_NE(one.peer, -1) << "rank " << rank << ": " << one.sentence;
    named += one.sentence.find(victim) != std::string::npos;
  }
  EXPECT_GE(named, 1) << "nobody named " << victim;
  return true;
}

class SimulatedFaults : public ::testing::TestWithParam<std::string> {};

TEST_P(SimulatedFaults, AreNoticedByAll) {
  const char* text = std::getenv("TRIREME_FAULT_SEEDS");
  const int seeds = text ? std::atoi(text) : 4;
  int broken = 0;
  for (int seed = 1; seed <= seeds && !HasFailure(); ++seed) {
    broken += breaks_as_it_should(GetParam(), static_cast<std::uint64_t>(seed) * 1000 +
                                                  std::hash<std::string>()(GetParam()) % 1000);
  }
  EXPECT_GE(broken, seeds / 2);
}

std::vector<std::string> everything() {
  std::vector<std::string> all;
  for (const auto& some : {test::all_reduces(), test::movers(), test::other_rounds()}) {
    all.insert(all.end(), some.begin(), some.end());
  }
  return all;
}
INSTANTIATE_TEST_SUITE_P(Of, SimulatedFaults, ::testing::ValuesIn(everything()),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::replace(name.begin(), name.end(), '.', '_');
                           return name;
                         });

}  // namespace
}  // namespace trireme
