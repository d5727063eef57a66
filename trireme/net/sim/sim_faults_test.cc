// Faults of the simulated network: lost packets, late messages, and cuts in one direction. (For
// collectives under these faults see tests/chaos/simulated_networks_test.cc.)
#include "trireme/net/sim/sim_faults.h"

#include <gtest/gtest.h>

#include <array>
#include <vector>

#include "trireme/base/error.h"
#include "trireme/base/work.h"
#include "trireme/net/sim/sim_network.h"
#include "trireme/net/transport.h"

namespace trireme {
namespace {

using namespace std::chrono_literals;
using net::SimFaults;
using net::SimNetwork;
using net::SimOptions;
using Bytes = std::vector<std::byte>;

SimOptions with(SimFaults faults, std::uint64_t seed = 1) {
  return {.seed = seed,
          .alpha = 1ms,
          .bytes_per_second = 1e6,
          .jitter = Duration::zero(),
          .shared_memory = false,
          .faults = std::move(faults)};
}

class Rank {
 public:
  Rank(SimNetwork& network, int rank)
      : transport(network.transport(rank)), start_(transport->waiter()->now()) {}
  Work send(int peer, const Bytes& bytes, std::uint64_t tag = 1) {
    Work work;
    transport->waiter()->run([&] { work = transport->send(peer, {tag}, bytes); });
    return work;
  }
  Work recv(int peer, Bytes& bytes, std::uint64_t tag = 1) {
    Work work;
    transport->waiter()->run([&] { work = transport->recv(peer, {tag}, bytes); });
    return work;
  }
  Duration passed() const { return transport->waiter()->now() - start_; }
  const std::shared_ptr<net::Transport> transport;

 private:
  const TimePoint start_;
};

TEST(SimFaults, LostPacketsComeLaterAndInOrder) {
  int later = 0;
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    SimNetwork network(2, with({.lost_per_million = 20'000}, seed));
    network.run([&](int self) {
      Rank rank(network, self);
      std::array<Bytes, 40> bytes;
      for (std::size_t i = 0; i < bytes.size(); ++i) {
        bytes[i].assign(100, self == 0 ? std::byte(i) : std::byte{255});
        if (self == 0) rank.send(1, bytes[i]).wait();
      }
      if (self == 0) return;
      for (std::size_t i = 0; i < bytes.size(); ++i) {
        rank.recv(0, bytes[i]).wait();
        EXPECT_EQ(bytes[i], Bytes(100, std::byte(i))) << "seed " << seed;
      }
      later += rank.passed() >= 200ms;
    });
  }
  EXPECT_GT(later, 0);
  EXPECT_LT(later, 20);
}

TEST(SimFaults, MessagesAreLate) {
  SimNetwork network(2, with({.late_per_million = 1'000'000, .late = 1s}));
  network.run([&](int self) {
    Rank rank(network, self);
    Bytes bytes(8);
    if (self == 0) return rank.send(1, bytes).wait();
    rank.recv(0, bytes).wait();
    EXPECT_GT(rank.passed(), 2ms);
    EXPECT_LE(rank.passed(), 1s + 2ms);
  });
}

// Rank 1 does not hear rank 0 for a second, and rank 0 hears rank 1.
TEST(SimFaults, ACutIsOfOneDirection) {
  SimNetwork network(2, with({.cuts = {{.from = 0, .to = 1, .begin = 0s, .end = 1s}}}));
  network.run([&](int self) {
    Rank rank(network, self);
    const Bytes out(8);
    Bytes in(8);
    const Work sent = rank.send(1 - self, out);
    rank.recv(1 - self, in).wait();
    const Duration heard = rank.passed();
    EXPECT_EQ(heard < 2ms, self == 0);
    EXPECT_EQ(heard >= 1s, self == 1);
    sent.wait();
  });
}

TEST(SimFaults, ALongCutBreaksTheConnectionForBothEnds) {
  SimNetwork network(
      3, with({.cuts = {{.from = 0, .to = 1, .begin = 1s, .end = 60s}}, .patience = 20s}));
  network.run([&](int self) {
    Rank rank(network, self);
    Bytes first(8), second(8);
    if (self == 2) {
      rank.transport->waiter()->sleep(90s);
      rank.send(0, first).wait();
      rank.send(1, first).wait();
      return;
    }
    const int peer = 1 - self;
    const Work sent = rank.send(peer, first);
    rank.recv(peer, second).wait();
    sent.wait();
    try {
      rank.recv(peer, second).wait();
      ADD_FAILURE() << "rank " << self << " got what nobody sent";
    } catch (const PeerLost& error) {
      EXPECT_EQ(error.peer(), peer);
      EXPECT_EQ(rank.passed(), 21s);
    }
    rank.recv(2, second).wait();  // the third rank is not affected
    EXPECT_TRUE(rank.transport->lost(peer));
  });
}

TEST(SimFaults, TheNetworkSaysWhenBytesLastMoved) {
  SimNetwork network(2, with({}));
  network.run([&](int self) {
    Rank rank(network, self);
    EXPECT_EQ(net::last_moved(*rank.transport), TimePoint::min());
    Bytes bytes(1'000'000);  // takes a second
    const Work work = self == 0 ? rank.send(1, bytes) : rank.recv(0, bytes);
    Waiter& waiter = *rank.transport->waiter();
    waiter.sleep(600ms);
    EXPECT_EQ(rank.transport->capabilities().moves->last_moved(1 - self), waiter.now());
    work.wait();
    waiter.sleep(600ms);
    EXPECT_LE(net::last_moved(*rank.transport), waiter.now() - 599ms);
  });
}

}  // namespace
}  // namespace trireme
