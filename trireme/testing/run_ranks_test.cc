#include "trireme/testing/run_ranks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

#include "trireme/base/error.h"
#include "trireme/base/work_source.h"
#include "trireme/net/sim/sim_network.h"

namespace trireme {
namespace {

using ::testing::HasSubstr;
using testing::RankContext;
using testing::run_ranks;
using namespace std::chrono_literals;

template <class T>
std::span<std::byte> raw(T& value) {
  return std::as_writable_bytes(std::span<T>(&value, 1));
}

Work send(RankContext& rank, int peer, std::uint64_t tag, std::span<const std::byte> bytes) {
  Work work;
  rank.waiter->run([&] { work = rank.transport->send(peer, {tag}, bytes); });
  return work;
}

Work recv(RankContext& rank, int peer, std::uint64_t tag, std::span<std::byte> bytes) {
  Work work;
  rank.waiter->run([&] { work = rank.transport->recv(peer, {tag}, bytes); });
  return work;
}

TEST(RunRanks, PassesATokenRound) {
  for (const int size : {1, 2, 3, 5, 8}) {
    std::vector<int> seen(static_cast<std::size_t>(size));
    run_ranks(size, [&](RankContext& rank) {
      int token = 0;
      const int next = (rank.rank + 1) % rank.size;
      const int previous = (rank.rank + rank.size - 1) % rank.size;
      if (rank.rank == 0) {
        Work sent = send(rank, next, 1, raw(token));
        recv(rank, previous, 1, raw(token)).wait();
        sent.wait();
      } else {
        recv(rank, previous, 1, raw(token)).wait();
        token += rank.rank;
        send(rank, next, 1, raw(token)).wait();
      }
      seen[static_cast<std::size_t>(rank.rank)] = token;
    });
    EXPECT_EQ(seen.front(), size * (size - 1) / 2);
  }
}

// Rank 0 takes whichever of two answers comes first. Correct programs must not depend on the order,
// so a test over several seeds must show both orders.
TEST(RunRanks, SeedsShowARaceAndRepeatIt) {
  const auto first_answer = [](std::uint64_t seed) {
    int first = -1;
    run_ranks(3,
              [&](RankContext& rank) {
                int value = rank.rank;
                if (rank.rank != 0) return send(rank, 0, 1, raw(value)).wait();
                int from_1 = 0, from_2 = 0;
                Work one = recv(rank, 1, 1, raw(from_1)), two = recv(rank, 2, 1, raw(from_2));
                rank.waiter->wait_until([&] { return one.done() || two.done(); }, TimePoint::max());
                first = one.done() ? 1 : 2;
                one.wait();
                two.wait();
              },
              {.seed = seed});
    return first;
  };
  std::set<int> answers;
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    const int answer = first_answer(seed);
    answers.insert(answer);
    EXPECT_EQ(answer, first_answer(seed)) << "seed " << seed << " did not repeat itself";
  }
  EXPECT_EQ(answers, (std::set<int>{1, 2}));
}

TEST(RunRanks, DeadlockNamesWhoWaitsForWhat) {
  std::string text;
  try {
    run_ranks(2, [](RankContext& rank) {
      long value = 0;
      recv(rank, 1 - rank.rank, 7, raw(value)).wait();
    });
  } catch (const net::DeadlockError& error) {
    text = error.what();
  }
  EXPECT_THAT(text, HasSubstr("rank 0 waits for 8 bytes from rank 1 (tag 7)"));
  EXPECT_THAT(text, HasSubstr("rank 1 waits for 8 bytes from rank 0 (tag 7)"));
}

TEST(RunRanks, EveryRankSeesTheDeadlock) {
  int caught = 0;
  run_ranks(3, [&](RankContext& rank) {
    long value = 0;
    EXPECT_THROW(recv(rank, (rank.rank + 1) % 3, 7, raw(value)).wait(), net::DeadlockError);
    ++caught;
  });
  EXPECT_EQ(caught, 3);
}

TEST(RunRanks, ExceptionNamesRankAndSeedAndFreesTheOthers) {
  try {
    run_ranks(3,
              [](RankContext& rank) {
                if (rank.rank == 1) throw std::out_of_range("too far");
                int value = 0;
                recv(rank, 1, 1, raw(value)).wait();
              },
              {.seed = 42});
    FAIL() << "the exception was swallowed";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("rank 1 (seed 42): threw std::out_of_range: too far"));
  }
}

TEST(RunRanks, LeavingRankIsNamed) {
  run_ranks(2, [](RankContext& rank) {
    if (rank.rank == 1) return;
    int value = 0;
    try {
      recv(rank, 1, 1, raw(value)).wait();
      FAIL() << "received from a rank that had left";
    } catch (const PeerLost& error) {
      EXPECT_EQ(error.peer(), 1);
      EXPECT_EQ(error.rank(), 0);
    }
  });
}

TEST(RunRanks, VirtualTimeJumpsToTheDeadline) {
  const TimePoint real_start = steady_now();
  run_ranks(2, [](RankContext& rank) {
    const TimePoint start = rank.waiter->now();
    rank.waiter->sleep(1h);
    EXPECT_GE(rank.waiter->now() - start, Duration(1h));
    EXPECT_LT(rank.waiter->now() - start, Duration(1h) + Duration(1ms));
  });
  EXPECT_LT(steady_now() - real_start, 10s);
}

TEST(RunRanks, TimersRunInOrderInTheContext) {
  run_ranks(1, [](RankContext& rank) {
    std::vector<int> order;
    const TimePoint start = rank.waiter->now();
    rank.waiter->run_at(start + 2ms, [&] { order.push_back(2); });
    rank.waiter->run_at(start + 1ms, [&] { order.push_back(1); });
    rank.waiter->wait_until([&] { return order.size() == 2; }, TimePoint::max());
    EXPECT_EQ(order, (std::vector<int>{1, 2}));
    EXPECT_EQ(rank.waiter->now() - start, Duration(2ms));
  });
}

// A source that polls a peer's memory, as the shared-memory algorithms do; no message arrives.
class Watcher final : public ProgressSource {
 public:
  Watcher(const volatile std::byte* cell, WorkSource source) : cell_(cell), source_(source) {}
  bool poll() override {
    if (source_.settled() || *cell_ == std::byte{0}) return false;
    source_.complete();
    return true;
  }
  bool pending() const noexcept override { return !source_.settled(); }
  int descriptor() const noexcept override { return -1; }
  void arm(bool) noexcept override {}

 private:
  const volatile std::byte* cell_;
  WorkSource source_;
};

TEST(RunRanks, RegionsAreSharedAndPolled) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    run_ranks(2,
              [](RankContext& rank) {
                net::HostMemory* const memory = rank.transport->capabilities().memory;
                net::Region region;
                rank.waiter->run([&] { region = memory->allocate(64, {}); });
                int token = 0;
                Work sent = send(rank, 1 - rank.rank, 1, raw(token));
                recv(rank, 1 - rank.rank, 1, raw(token)).wait();
                std::span<std::byte> other;
                rank.waiter->run([&] { other = memory->map(1 - rank.rank, region.id); });
                ASSERT_EQ(other.size(), 64u);
                WorkSource source(rank.waiter, nullptr, "watch");
                auto watcher = std::make_shared<Watcher>(other.data(), source);
                rank.waiter->add(watcher);
                region.bytes[0] = std::byte{1};
                source.work().wait();
                rank.waiter->remove(watcher.get());
                sent.wait();
              },
              {.seed = seed});
  }
}

TEST(RunRanks, TraceIsAFunctionOfTheSeed) {
  const auto trace = [](std::uint64_t seed) {
    net::SimNetwork network(4, {.seed = seed});
    network.run([&](int rank) {
      auto transport = network.transport(rank);
      const auto waiter = transport->waiter();
      std::vector<int> values(4);
      std::vector<Work> works;
      waiter->run([&] {
        for (int peer = 0; peer < 4; ++peer) {
          works.push_back(transport->recv(peer, {1}, raw(values[static_cast<std::size_t>(peer)])));
          works.push_back(transport->send(peer, {1}, raw(rank)));
        }
      });
      Work::all(works).wait();
    });
    return network.trace();
  };
  EXPECT_EQ(trace(5), trace(5));
  EXPECT_NE(trace(5), trace(6));
}

}  // namespace
}  // namespace trireme
