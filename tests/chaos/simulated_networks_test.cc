// Every collective over networks that lose packets, are slow at times, and are cut in one direction
// between two ranks, by seed, on the virtual clock. If the cuts end in time, all calls succeed. If
// not, every rank that has not ended yet gets an error that names a peer, and a rank at a cut is
// named; no rank waits for ever. A failing seed can be repeated.
//
// tests/chaos/simulated_networks.full (label soak) takes 300 seeds of each.
#include <gtest/gtest.h>

#include <cstdlib>
#include <random>
#include <set>

#include "tests/chaos/checked_calls.h"
#include "trireme/base/error.h"
#include "trireme/comm/communicator_options.h"
#include "trireme/net/sim/sim_network.h"

namespace trireme {
namespace {

using namespace std::chrono_literals;

constexpr int kSteps = 60;
constexpr Duration kTimeout = 30s;

// A network drawn from a seed.
struct Network {
  explicit Network(std::uint64_t seed) : random(seed) {
    size = 2 + below(4);
    options.seed = seed;
    options.shared_memory = false;
    net::SimFaults& faults = options.faults;
    faults.lost_per_million = pick({0, 100, 2'000});
    faults.late_per_million = pick({0, 1'000, 100'000});
    if (below(2) == 0) faults.patience = 20s;
    for (int cuts = below(3); cuts > 0; --cuts) {
      net::SimCut cut;
      cut.from = below(size);
      cut.to = (cut.from + 1 + below(size - 1)) % size;
      cut.begin = std::chrono::microseconds(below(20'000));
      const int seconds = pick({1, 5, 12, 70, -1});
      if (seconds > 0) cut.end = cut.begin + std::chrono::seconds(seconds);
      harmless &= cut.end <= cut.begin + 12s;
      faults.cuts.push_back(cut);
    }
  }
  int below(int bound) { return static_cast<int>(random() % static_cast<std::uint64_t>(bound)); }
  int pick(std::vector<int> choices) { return choices[random() % choices.size()]; }
  bool is_cut(int rank, int peer) const {
    for (const net::SimCut& cut : options.faults.cuts) {
      if (cut.end <= cut.begin + 12s) continue;
      if (std::set{cut.from, cut.to} == std::set{rank, peer}) return true;
    }
    return false;
  }
  bool is_end(int rank) const {
    bool found = false;
    for (int peer = 0; peer < size; ++peer) found |= is_cut(rank, peer);
    return found;
  }
  std::string text(std::uint64_t seed) const {
    std::string all = "seed " + std::to_string(seed) + ", " + std::to_string(size) + " ranks";
    for (const net::SimCut& cut : options.faults.cuts) {
      all += "; " + std::to_string(cut.from) + " -> " + std::to_string(cut.to) + " cut";
    }
    return all;
  }

  std::mt19937_64 random;
  int size = 2;
  net::SimOptions options;
  bool harmless = true;
};

struct Finished {
  int code = 0, peer = -1;  // 0: all its calls succeeded
  std::string sentence;
};

Finished run_one(net::SimNetwork& network, const std::string& what, int rank) {
  try {
    comm::Communicator world(network.transport(rank), {.timeout = kTimeout});
    test::CheckedCalls calls(world, what);
    for (int step = 0; step < kSteps; ++step) {
      if (!calls.step(step)) ADD_FAILURE() << "wrong data on rank " << rank << ", step " << step;
    }
  } catch (const Error& error) {
    return {static_cast<int>(error.code()), error.peer(), error.what()};
  }
  return {};
}

// Returns true if a cut ended the run.
bool ends_as_it_should(const std::string& what, std::uint64_t seed) {
  const Network chosen(seed);
  SCOPED_TRACE(what + ", " + chosen.text(seed));
  net::SimNetwork network(chosen.size, chosen.options);
  std::vector<Finished> ended(static_cast<std::size_t>(chosen.size));
  network.run(
      [&](int rank) { ended[static_cast<std::size_t>(rank)] = run_one(network, what, rank); });
  int failed = 0, named = 0;
  for (int rank = 0; rank < chosen.size; ++rank) {
    const Finished& one = ended[static_cast<std::size_t>(rank)];
    if (one.code == 0) continue;
    ++failed;
    EXPECT_FALSE(chosen.harmless) << "rank " << rank << ": " << one.sentence;
    EXPECT_TRUE(one.code == 160 || one.code == 161) << "rank " << rank << ": " << one.sentence;
    EXPECT_NE(one.peer, -1) << "rank " << rank << ": " << one.sentence;
    named += one.peer >= 0 && chosen.is_end(one.peer);
  }
  EXPECT_EQ(named > 0, failed > 0) << "nobody named an end of a cut: " << ended[0].sentence;
  return failed > 0;
}

class SimulatedNetworks : public ::testing::TestWithParam<std::string> {};

TEST_P(SimulatedNetworks, EndWellOrWithAnErrorThatNamesAPeer) {
  const char* text = std::getenv("TRIREME_FAULT_SEEDS");
  const int seeds = text ? std::atoi(text) : 12;
  int broken = 0;
  for (int seed = 1; seed <= seeds && !HasFailure(); ++seed) {
    broken += ends_as_it_should(GetParam(), static_cast<std::uint64_t>(seed) * 1000 +
                                                std::hash<std::string>()(GetParam()) % 1000);
  }
  EXPECT_GE(broken, 1);
  EXPECT_LT(broken, seeds);
}

std::vector<std::string> trainings() {
  std::vector<std::string> all;
  for (const auto& some : {test::all_reduces(), test::movers(), test::other_rounds()}) {
    all.insert(all.end(), some.begin(), some.end());
  }
  return all;
}
INSTANTIATE_TEST_SUITE_P(Of, SimulatedNetworks, ::testing::ValuesIn(trainings()),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::replace(name.begin(), name.end(), '.', '_');
                           return name;
                         });

}  // namespace
}  // namespace trireme
