#include "trireme/comm/communicator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <new>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "trireme/base/error.h"
#include "trireme/comm/calls/run_event.h"
#include "trireme/comm/collectives.h"
#include "trireme/comm/rounds/registry.h"
#include "trireme/testing/run_ranks.h"

namespace trireme::comm {
namespace {

using ::testing::HasSubstr;
using testing::RankContext;
using testing::run_ranks;

TEST(Communicator, AllReducesASpan) {
  for (int size : {1, 2, 3, 5, 8}) {
    for (std::size_t count : {0u, 1u, 16u, 17u, 1000u, 5000u}) {
      run_ranks(size, [&](RankContext& rank) {
        std::vector<float> x(count, float(rank.rank + 1));
        all_reduce(*rank.world, x, Sum);
        EXPECT_EQ(x, std::vector<float>(count, float(size * (size + 1) / 2)));
        std::vector<double> mean(count, double(rank.rank));
        all_reduce(*rank.world, mean, Mean);
        EXPECT_EQ(mean, std::vector<double>(count, double(size * (size - 1) / 2) / size));
        std::vector<std::int32_t> most(count, rank.rank);
        all_reduce(*rank.world, most, Max);
        EXPECT_EQ(most, std::vector<std::int32_t>(count, size - 1));
      });
    }
  }
}

TEST(Communicator, MovesData) {
  for (int size : {1, 2, 3, 5, 8}) {
    for (std::size_t count : {0u, 1u, 9u, 3000u}) {
      run_ranks(size, [&](RankContext& rank) {
        for (int root = 0; root < size; ++root) {
          std::vector<std::int64_t> x(count, rank.rank == root ? 42 + root : -1);
          broadcast(*rank.world, x, root);
          EXPECT_EQ(x, std::vector<std::int64_t>(count, 42 + root));
        }
        std::vector<float> in(count, float(rank.rank)), out(count * size), all;
        for (int r = 0; r < size; ++r) all.insert(all.end(), count, float(r));
        all_gather(*rank.world, in, out);
        EXPECT_EQ(out, all);
        std::vector<float> piece(count);
        reduce_scatter(*rank.world, out, piece, Sum);
        EXPECT_EQ(piece, std::vector<float>(count, float(size * rank.rank)));
        EXPECT_EQ(out, all);  // the input is not overwritten
        barrier(*rank.world);
      });
    }
  }
}

TEST(Communicator, GathersPiecesOfDifferentCounts) {
  run_ranks(3, [](RankContext& rank) {
    const std::size_t counts[] = {5, 0, 2000};
    std::vector<std::uint8_t> in(counts[rank.rank], std::uint8_t(rank.rank)), out(2005),
        expected(5, 0);
    expected.resize(2005, 2);
    rank.world->all_gather_v(buffer_of(in), buffer_of(out), counts).wait();
    EXPECT_EQ(out, expected);
  });
}

TEST(Communicator, SendsAndReceives) {
  run_ranks(3, [](RankContext& rank) {
    for (std::size_t count : {0u, 1u, 10000u}) {
      std::vector<float> out(count, float(rank.rank)), in(count);
      const int next = (rank.rank + 1) % 3, prev = (rank.rank + 2) % 3;
      const Work works[] = {rank.world->send(buffer_of(out), next, 7),
                            rank.world->recv(buffer_of(in), prev, 7)};
      Work::all(works).wait();
      EXPECT_EQ(in, std::vector<float>(count, float(prev)));
    }
  });
}

TEST(Communicator, ManyOperationsMayBeUnderWay) {
  run_ranks(3, [](RankContext& rank) {
    std::vector<std::vector<float>> x;
    std::vector<Work> works;
    for (int i = 0; i < 40; ++i) x.emplace_back(1 + i * 37, float(i + rank.rank));
    for (auto& one : x) works.push_back(async::all_reduce(*rank.world, one, Sum));
    Work::all(works).wait();
    for (int i = 0; i < 40; ++i) EXPECT_EQ(x[i].back(), float(3 * i + 3));
  });
}

TEST(Communicator, EveryRankSeesBothSidesOfAMismatch) {
  for (std::size_t count : {4u, 100u, 100000u}) {
    std::atomic<int> seen{0};
    run_ranks(3, [&](RankContext& rank) {
      std::vector<float> x(count, 1.0f);
      barrier(*rank.world);
      try {
        rank.rank == 1 ? broadcast(*rank.world, x, 0) : all_reduce(*rank.world, x, Sum);
      } catch (const MismatchError& error) {
        ++seen;
        const std::string what = error.what();
        EXPECT_THAT(what, HasSubstr("all_reduce(Sum, F32, " + std::to_string(count) + ""));
        EXPECT_THAT(what,
                    HasSubstr("rank 1 called broadcast(root 0, F32, " + std::to_string(count)));
        EXPECT_THAT(what, HasSubstr("as call 2"));
        EXPECT_FALSE(error.advice().empty());
      }
      EXPECT_EQ(x, std::vector<float>(count, 1.0f));      // not touched
      EXPECT_THROW(barrier(*rank.world), MismatchError);  // it stays broken
    });
    EXPECT_EQ(seen, 3);
  }
}

TEST(Communicator, ADifferentCountIsAMismatchAndNotACrash) {
  std::atomic<int> seen{0};
  run_ranks(2, [&](RankContext& rank) {
    std::vector<float> x(rank.rank == 0 ? 100 : 5000, 1.0f);
    try {
      all_reduce(*rank.world, x, Sum);
    } catch (const MismatchError& error) {
      ++seen;
      EXPECT_THAT(error.what(), HasSubstr("rank 0 called all_reduce(Sum, F32, 100"));
    }
  });
  EXPECT_EQ(seen, 2);
}

TEST(Communicator, ADeadlineNamesWhoDidNotCome) {
  std::atomic<int> seen{0};
  run_ranks(3, [&](RankContext& rank) {
    if (rank.rank == 1) return rank.waiter->sleep(std::chrono::minutes(2));
    std::vector<float> x(10, 1.0f);
    try {
      all_reduce(*rank.world, x, Sum, {.label = "bucket 2"});
    } catch (const TimeoutError& error) {
      ++seen;
      EXPECT_EQ(error.operation(), "all_reduce");
      EXPECT_EQ(error.label(), "bucket 2");
      EXPECT_EQ(error.peer(), 1);
      EXPECT_THAT(error.what(), HasSubstr("waited 30.0 s for rank 1"));
    }
    EXPECT_GE(rank.world->time_waited(), std::chrono::seconds(29));
  });
  EXPECT_EQ(seen, 2);
}

// Rank 2 does not call the barrier that is open meanwhile.
TEST(Communicator, AMessagesErrorNamesItAndItsPeer) {
  for (const bool shared : {true, false}) {
    SimulationOptions options;
    options.network.shared_memory = shared;
    simulate(3, options, [&](SimulatedRank& rank) {
      if (rank.rank == 2) return rank.waiter->sleep(std::chrono::minutes(2));
      const Work open = rank.world->barrier();
      if (rank.rank == 1) return rank.waiter->sleep(std::chrono::minutes(2));
      std::vector<float> x(10);
      try {
        rank.world->recv(buffer_of(x), 1, 0, {.label = "rows"}).wait();
        ADD_FAILURE() << "received what nobody sent";
      } catch (const TimeoutError& error) {
        EXPECT_EQ(error.operation(), "recv");
        EXPECT_EQ(error.label(), "rows");
        EXPECT_EQ(error.peer(), 1);
        EXPECT_THAT(error.what(), HasSubstr("waited 30.0 s for rank 1 ("));
      }
    });
  }
}

TEST(Communicator, AMessageThatDiffersIsNamedAndNotTheOpenBarrier) {
  run_ranks(3, [](RankContext& rank) {
    if (rank.rank == 2) return rank.waiter->sleep(std::chrono::seconds(10));
    const Work open = rank.world->barrier();
    std::vector<float> x(rank.rank == 0 ? 10 : 5);
    if (rank.rank == 1) return rank.world->send(buffer_of(x), 0).wait();
    try {
      rank.world->recv(buffer_of(x), 1).wait();
      ADD_FAILURE() << "received another count";
    } catch (const MismatchError& error) {
      EXPECT_EQ(error.operation(), "recv");
      EXPECT_EQ(error.peer(), 1);
    }
  });
}

TEST(Communicator, AnOperationsOwnDeadlineCounts) {
  run_ranks(2, [&](RankContext& rank) {
    if (rank.rank == 1) return rank.waiter->sleep(std::chrono::seconds(20));
    const TimePoint start = rank.waiter->now();
    EXPECT_THROW(barrier(*rank.world, {.deadline = Deadline::in(std::chrono::seconds(3))}),
                 TimeoutError);
    EXPECT_LT(rank.waiter->now() - start, std::chrono::seconds(4));
  });
}

// Though a peer is in user code.
TEST(Communicator, AShortDeadlineIsKeptWhateverThePeersDo) {
  struct Patient final : PeerWatch {
    Verdict ask(std::string_view, Duration) override { return {.keep_waiting = true}; }
    void activity(std::string_view, bool) noexcept override {}
  };
  run_ranks(2, [&](RankContext& rank) {
    Communicator world(rank.transport, {.watch = std::make_shared<Patient>()});
    if (rank.rank == 1) return rank.waiter->sleep(std::chrono::minutes(2));
    const TimePoint start = rank.waiter->now();
    EXPECT_THROW(barrier(world, {.deadline = Deadline::in(std::chrono::seconds(3))}), TimeoutError);
    EXPECT_LT(rank.waiter->now() - start, std::chrono::seconds(4));
  });
}

class Patience final : public PeerWatch {
 public:
  explicit Patience(int times) : times_(times) {}
  Verdict ask(std::string_view operation, Duration) override {
    EXPECT_EQ(operation, "barrier");
    return {.keep_waiting = times_-- > 0, .explanation = "rank 1 is in user code since 45 s"};
  }
  void activity(std::string_view, bool waiting) noexcept override { waiting ? ++began : ++ended; }
  int began = 0, ended = 0;

 private:
  int times_;
};

TEST(Communicator, APeerInUserCodeIsWaitedFor) {
  run_ranks(2, [&](RankContext& rank) {
    std::vector<std::string> lines;
    auto watch = std::make_shared<Patience>(3);
    CommunicatorOptions options;
    options.timeout = std::chrono::seconds(5);
    options.watch = watch;
    options.on_stall = [&](std::string_view line) { lines.emplace_back(line); };
    Communicator world(rank.transport, options);
    if (rank.rank == 1) rank.waiter->sleep(std::chrono::seconds(18));
    barrier(world);
    if (rank.rank == 1) return;
    ASSERT_EQ(lines.size(), 3u);
    EXPECT_THAT(
        lines[0],
        HasSubstr("rank 1 is in user code since 45 s; rank 0 waits in barrier since 5.0 s"));
    EXPECT_EQ(watch->began, 1);
    EXPECT_EQ(watch->ended, 1);
  });
}

TEST(Communicator, AbortFailsWhatIsOpenAndWhatComes) {
  run_ranks(2, [&](RankContext& rank) {
    if (rank.rank == 1) return rank.waiter->sleep(std::chrono::seconds(1));
    std::vector<float> x(10);
    const Work open = async::all_reduce(*rank.world, x, Sum);
    rank.world->abort(std::make_exception_ptr(PeerLost("rank 1 was killed", {.peer = 1})));
    EXPECT_THROW(open.wait(), PeerLost);
    EXPECT_THROW(barrier(*rank.world), PeerLost);
    EXPECT_TRUE(rank.world->failure());
  });
}

// Rank 1 has not looked yet when it hears that the ranks change.
TEST(Communicator, AbortDoesNotFailWhatIsComplete) {
  std::shared_ptr<Communicator> other;
  run_ranks(2, [&](RankContext& rank) {
    if (rank.rank == 1) {
      other = rank.world;
      EXPECT_NO_THROW(rank.world->barrier().wait());
      EXPECT_THROW(barrier(*rank.world), PeerLost);
      return;
    }
    rank.waiter->sleep(std::chrono::milliseconds(1));
    rank.world->barrier().wait();
    std::exchange(other, nullptr)->abort(std::make_exception_ptr(PeerLost("the ranks change")));
  });
}

TEST(Communicator, ADeadPeerEndsTheOthers) {
  std::atomic<int> seen{0};
  run_ranks(3, [&](RankContext& rank) {
    if (rank.rank == 2) {
      rank.world.reset();
      rank.transport.reset();
      return;
    }
    std::vector<float> x(100000);
    try {
      all_reduce(*rank.world, x, Sum);
    } catch (const PeerLost& error) {
      ++seen;
      EXPECT_EQ(error.peer(), 2);
      EXPECT_EQ(error.operation(), "all_reduce");
    }
  });
  EXPECT_EQ(seen, 2);
}

// Memory may run out at any point of a call.
TEST(Communicator, AnExceptionInsideACallEndsItOnEveryRank) {
  for (const RunEvent::Kind at :
       {RunEvent::Kind::Send, RunEvent::Kind::Receive, RunEvent::Kind::Add, RunEvent::Kind::Out}) {
    for (const char* algorithm : {"ring", "naive", "direct"}) {
      std::atomic<int> seen{0};
      SimulationOptions options;
      options.world.algorithm = algorithm;
      options.network.shared_memory = std::string_view(algorithm) == "direct";
      options.prepare = [at](SimulatedRank& rank, CommunicatorOptions& world) {
        world.on_run = [at, fails = rank.rank == 1](const RunEvent& event) {
          if (fails && event.kind == at) throw std::bad_alloc();
        };
      };
      simulate(3, options, [&](SimulatedRank& rank) {
        const Arena arena = rank.world->allocate(4000);
        const Buffer x = arena.buffer(0, 1000, DType::F32);
        try {
          for (int i = 0; i < 2; ++i)  // some ranks may have ended the first one
            rank.world->all_reduce(x, Sum).wait();
        } catch (const std::bad_alloc&) {
          seen += rank.rank == 1;
        } catch (const Error&) {
          seen += rank.rank != 1;
        }
      });
      EXPECT_EQ(seen, 3) << algorithm << ", event " << static_cast<int>(at);
    }
  }
}

// Hosts of different sizes, ranks in any order: the bits must not depend on the hosts.
TEST(Communicator, HierarchicalOverHosts) {
  const std::vector<std::vector<std::string>> layouts = {{"a", "a", "b", "b"},
                                                         {"a", "b", "a", "b", "b"},
                                                         {"a", "a", "a", "b", "c", "c", "c", "c"},
                                                         {"a", "b", "c", "d", "e"}};
  for (const auto& hosts : layouts) {
    const int size = static_cast<int>(hosts.size());
    run_ranks(size, [&](RankContext& rank) {
      CommunicatorOptions options;
      options.host_of_rank = hosts;
      Communicator world(rank.transport, options);
      for (std::size_t count : {5u, 300u, 20'000u}) {
        std::vector<float> x(count), same(count);
        for (std::size_t i = 0; i < count; ++i) {
          x[i] = same[i] =
              1.0f / (3.0f + static_cast<float>(i) * static_cast<float>(rank.rank + 1));
        }
        all_reduce(world, x, Sum, {.algorithm = "hierarchical"});
        all_reduce(world, same, Sum, {.algorithm = "naive"});
        EXPECT_EQ(x, same);
      }
    });
  }
}

// A wrong algorithm fails on every rank, with a reason, before anything is sent.
TEST(Communicator, AWrongAlgorithmIsRefusedWhenItIsCalled) {
  register_all_reduce("forgets_to_add", [](Algorithm& a) {
    a.send(a.next(), a.chunk(a.rank)).copy_from(a.prev(), a.chunk(a.rank - 1));
  });
  std::atomic<int> seen{0};
  run_ranks(3, [&](RankContext& rank) {
    std::vector<float> x(1000, 1.0f);
    try {
      all_reduce(*rank.world, x, Sum, {.algorithm = "forgets_to_add"});
    } catch (const ConfigError& error) {
      ++seen;
      EXPECT_THAT(error.what(), HasSubstr("algorithm forgets_to_add on 3 ranks: rank 0 "
                                          "ends without the whole sum of chunk"));
    }
    EXPECT_EQ(x, std::vector<float>(1000, 1.0f));
  });
  EXPECT_EQ(seen, 3);
}

TEST(Communicator, OneRankTakesDirectInEveryCall) {
  run_ranks(1, [](RankContext& rank) {
    Communicator& world = *rank.world;
    const OpOptions how{.algorithm = "direct"};
    std::vector<float> in{3}, out(1);
    const std::vector<std::function<Work(Buffer, Buffer)>> calls = {
        [&](Buffer from, Buffer to) { return world.all_gather(from, to, how); },
        [&](Buffer from, Buffer to) { return world.reduce_scatter(from, to, Sum, how); },
        [&](Buffer from, Buffer to) { return world.reduce(from, to, Sum, 0, how); },
        [&](Buffer from, Buffer to) { return world.gather(from, to, 0, how); },
        [&](Buffer from, Buffer to) { return world.scatter(from, to, 0, how); },
        [&](Buffer from, Buffer to) { return world.all_to_all(from, to, how); }};
    for (const auto& call : calls) {
      out[0] = 0;
      call(buffer_of(in), buffer_of(out)).wait();
      EXPECT_EQ(out, in);
    }
    world.broadcast(buffer_of(in), 0, how).wait();
    world.all_reduce(buffer_of(in), Sum, how).wait();
    EXPECT_EQ(in[0], 3);
  });
}

TEST(Communicator, RefusesWrongCalls) {
  run_ranks(2, [](RankContext& rank) {
    std::vector<std::int64_t> integers(3);
    std::vector<float> x(3), y(7);
    Communicator& world = *rank.world;
    EXPECT_THROW(all_reduce(world, integers, Mean), ConfigError);
    EXPECT_THROW(broadcast(world, x, 2), ConfigError);
    EXPECT_THROW(all_gather(world, x, y), ConfigError);
    EXPECT_THROW((void)world.send(buffer_of(x), rank.rank), ConfigError);
    EXPECT_THROW(all_reduce(world, x, Sum, {.algorithm = "fastest"}), ConfigError);
    const Term wrong[] = {{buffer_of(x), 0, 1}};
    EXPECT_THROW((void)world.all_reduce(wrong, 4, buffer_of(x)), ConfigError);
    barrier(world);  // refused calls do not break the communicator
  });
}

TEST(Communicator, SaysWhyDirectIsImpossible) {
  SimulationOptions options;
  options.network.shared_memory = false;
  simulate(2, options, [](SimulatedRank& rank) {
    std::vector<float> x(1000), all(2000);
    const OpOptions how{.algorithm = "direct"};
    const auto refused = ::testing::ThrowsMessage<ConfigError>(
        HasSubstr("direct needs memory that ranks share; transport sim cannot map it"));
    EXPECT_THAT([&] { all_reduce(*rank.world, x, Sum, how); }, refused);
    EXPECT_THAT([&] { all_gather(*rank.world, x, all, how); }, refused);
  });
}

}  // namespace
}  // namespace trireme::comm
