// The simulated cluster: shared links, no shared memory, and computation that takes time.
// (run_ranks tests the transport's correctness.)
#include "trireme/net/sim/sim_network.h"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

#include "trireme/base/error.h"
#include "trireme/base/work.h"

namespace trireme {
namespace {

using namespace std::chrono_literals;
using net::SimNetwork;
using net::SimOptions;

// When each rank's body ended, on the virtual clock.
std::vector<Duration> ends(int size, const SimOptions& options,
                           const std::function<void(net::Transport&)>& body) {
  SimNetwork network(size, options);
  std::vector<Duration> when(static_cast<std::size_t>(size));
  network.run([&](int rank) {
    const auto transport = network.transport(rank);
    const TimePoint start = transport->waiter()->now();
    body(*transport);
    when[static_cast<std::size_t>(rank)] = transport->waiter()->now() - start;
  });
  return when;
}

Work send(net::Transport& transport, int peer, std::vector<std::byte>& bytes) {
  Work work;
  transport.waiter()->run([&] { work = transport.send(peer, {1}, bytes); });
  return work;
}

Work recv(net::Transport& transport, int peer, std::vector<std::byte>& bytes) {
  Work work;
  transport.waiter()->run([&] { work = transport.recv(peer, {1}, bytes); });
  return work;
}

TEST(SimNetwork, RethrowsTheFirstExceptionOfARank) {
  SimNetwork network(3);
  int ended = 0;
  try {
    network.run([&](int rank) {
      if (rank == 1) throw ConfigError("of rank 1");
      network.waiter(rank)->sleep(1s);
      ++ended;
      throw ConfigError("later");
    });
    ADD_FAILURE() << "the exception was swallowed";
  } catch (const ConfigError& error) {
    EXPECT_EQ(error.message(), "of rank 1");
  }
  EXPECT_EQ(ended, 2) << "the others run to their ends";
}

SimOptions quiet_cluster() {
  SimOptions options = net::cluster(25us, 1e9);
  options.charge_computing = false;  // for times exact to the nanosecond
  return options;
}

TEST(SimNetwork, MessagesOfARankLeaveOneAfterAnother) {
  const auto when = ends(4, quiet_cluster(), [](net::Transport& transport) {
    std::vector<std::byte> bytes(1'000'000);
    if (transport.rank() != 0) return recv(transport, 0, bytes).wait();
    std::vector<Work> works;
    for (int peer = 1; peer < 4; ++peer) works.push_back(send(transport, peer, bytes));
    for (const Work& work : works) work.wait();
  });
  EXPECT_EQ(when[1], 1ms + 25us);
  EXPECT_EQ(when[2], 2ms + 25us);
  EXPECT_EQ(when[3], 3ms + 25us);
}

TEST(SimNetwork, MessagesToARankArriveOneAfterAnother) {
  const auto when = ends(4, quiet_cluster(), [](net::Transport& transport) {
    std::vector<std::byte> bytes(1'000'000);
    if (transport.rank() != 0) return send(transport, 0, bytes).wait();
    std::vector<std::vector<std::byte>> parts(4, bytes);
    for (int peer = 1; peer < 4; ++peer) {
      recv(transport, peer, parts[static_cast<std::size_t>(peer)]).wait();
    }
  });
  EXPECT_EQ(when[0], 3ms + 25us);
}

// An aborting sender may have sent the second message while the first waited for its receive.
TEST(SimNetwork, NoMessageTakesThePlaceOfALostOne) {
  int lost = 0;
  for (std::uint64_t seed = 1; seed <= 30; ++seed) {
    SimOptions options;
    options.seed = seed;
    ends(2, options, [&](net::Transport& transport) {
      std::vector<std::byte> first(100'000, std::byte{1}), second(100'000, std::byte{2});
      if (transport.rank() == 0) {
        const Work works[] = {send(transport, 1, first), send(transport, 1, second)};
        transport.waiter()->run(
            [&] { transport.abort(std::make_exception_ptr(ResourceError("the cable is cut"))); });
        return;
      }
      if (seed % 2 == 0) transport.waiter()->sleep(1ms);  // both messages have arrived, or neither
      std::vector<std::byte> got(100'000);
      try {
        recv(transport, 0, got).wait();
        EXPECT_EQ(got, std::vector<std::byte>(100'000, std::byte{1})) << "seed " << seed;
      } catch (const PeerLost&) {
        ++lost;
      }
    });
  }
  EXPECT_GT(lost, 0);
}

TEST(SimNetwork, ATaskOfAnotherThreadRunsBeforeLaterOnes) {
  std::vector<int> order;
  ends(1, quiet_cluster(), [&](net::Transport& transport) {
    const auto waiter = transport.waiter();
    std::thread([&] { waiter->run([&] { order.push_back(1); }); }).join();
    waiter->run([&] { order.push_back(2); });
  });
  EXPECT_EQ(order, (std::vector{1, 2}));
}

TEST(SimNetwork, ClusterHasNoSharedMemory) {
  ends(2, quiet_cluster(),
       [](net::Transport& transport) { EXPECT_EQ(transport.capabilities().memory, nullptr); });
}

void compute(Duration duration) {
  for (const Duration end = thread_time() + duration; thread_time() < end;) {
  }
}

// Four ranks compute 20 ms each, one after another in real time, in parallel on the virtual clock.
TEST(SimNetwork, ComputingTakesItsTimeSideBySide) {
  const auto when = ends(4, net::cluster(25us, 1e9), [](net::Transport& transport) {
    compute(20ms);
    std::vector<std::byte> bytes(8);
    const int next = (transport.rank() + 1) % 4, previous = (transport.rank() + 3) % 4;
    std::vector<std::byte> other(8);
    const Work sent = send(transport, next, bytes), received = recv(transport, previous, other);
    sent.wait();
    received.wait();
  });
  for (const Duration one : when) {
    EXPECT_GE(one, 20ms);
    EXPECT_LT(one, 60ms);
  }
}

TEST(SimNetwork, ComputingAfterTheLastWaitCountsToo) {
  const auto when = ends(1, net::cluster(25us, 1e9), [](net::Transport&) { compute(10ms); });
  EXPECT_GE(when[0], 10ms);
}

TEST(SimNetwork, ComputingIsFreeWhereItIsNotCharged) {
  const auto when = ends(2, quiet_cluster(), [](net::Transport&) { compute(5ms); });
  EXPECT_EQ(when[0], 0ms);
}

}  // namespace
}  // namespace trireme
