// The timeout limits the time without progress: a transfer may take longer while bytes move.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <vector>

#include "trireme/base/error.h"
#include "trireme/comm/collectives.h"
#include "trireme/comm/simulate.h"

namespace trireme {
namespace {

using namespace std::chrono_literals;

comm::SimulationOptions slow(const std::string& algorithm, std::uint64_t seed = 1) {
  comm::SimulationOptions options;
  options.network.seed = seed;
  options.network.bytes_per_second = 1e5;
  options.network.shared_memory = false;
  options.world.algorithm = algorithm;
  options.world.timeout = 1s;
  return options;
}

TEST(Deadline, AnAllReduceOverASlowLinkEndsWell) {
  for (const char* algorithm : {"ring", "naive", "halving_doubling"}) {
    for (std::uint64_t seed = 1; seed <= 5; ++seed) {
      comm::simulate(2, slow(algorithm, seed), [](comm::SimulatedRank& rank) {
        std::vector<float> x(100'000, static_cast<float>(rank.rank + 1));
        const TimePoint start = rank.waiter->now();
        all_reduce(*rank.world, x, Sum);
        EXPECT_GT(rank.waiter->now() - start, 2s);
        EXPECT_EQ(x, std::vector<float>(100'000, 3.0f));
      });
    }
  }
}

TEST(Deadline, AMessageOverASlowLinkEndsWell) {
  comm::simulate(2, slow("auto"), [](comm::SimulatedRank& rank) {
    std::vector<float> x(100'000, 4.0f);
    const Buffer buffer = Buffer::of(std::span(x));
    if (rank.rank == 0) return rank.world->send(buffer, 1).wait();
    x.assign(x.size(), 0.0f);
    rank.world->recv(buffer, 0).wait();
    EXPECT_EQ(x, std::vector<float>(100'000, 4.0f));
  });
}

// The timeout counts from the last byte, not from the last time that it was checked.
TEST(Deadline, SilenceAfterATransferEndsTheWait) {
  comm::simulate(2, slow("auto"), [](comm::SimulatedRank& rank) {
    std::vector<float> x(50'000), never(1);
    const Buffer buffer = Buffer::of(std::span(x)), second = Buffer::of(std::span(never));
    if (rank.rank == 0) {
      rank.world->send(buffer, 1).wait();
      rank.waiter->sleep(60s);
      return;
    }
    const Work first = rank.world->recv(buffer, 0);
    const Work work = rank.world->recv(second, 0);
    TimePoint arrived{};
    first.on_settled([&](const std::exception_ptr&) { arrived = rank.waiter->now(); });
    try {
      work.wait();
      ADD_FAILURE() << "received what nobody sent";
    } catch (const TimeoutError& error) {
      EXPECT_EQ(error.peer(), 0);
      EXPECT_NE(arrived, TimePoint{});
      EXPECT_LT(rank.waiter->now() - arrived, 1100ms);
      EXPECT_GE(rank.waiter->now() - arrived, 900ms);
    }
  });
}

// The send waits for a receive that is never posted.
TEST(Deadline, WhoDoesNotTakeAMessageIsNamed) {
  int named = 0;
  for (std::uint64_t seed = 1; seed <= 8; ++seed) {
    comm::simulate(2, slow("auto", seed), [&](comm::SimulatedRank& rank) {
      if (rank.rank == 1) return rank.waiter->sleep(60s);
      std::vector<float> x(10'000);
      try {
        rank.world->send(Buffer::of(std::span(x)), 1).wait();  // ends if the network buffers it
      } catch (const TimeoutError& error) {
        EXPECT_EQ(error.peer(), 1) << error.what();
        ++named;
      }
    });
  }
  EXPECT_GT(named, 0);
}

}  // namespace
}  // namespace trireme
