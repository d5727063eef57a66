// Tests of a rank whose loop has ended, and of a rank that allocates while the others do not. Both
// must be noticed at once, whatever the others call. Virtual time shows that no deadline expired.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include "trireme/base/error.h"
#include "trireme/comm/collectives.h"
#include "trireme/testing/run_ranks.h"

namespace trireme::comm {
namespace {

using ::testing::HasSubstr;
using testing::RankContext;
using testing::run_ranks;

constexpr Duration kSlow = std::chrono::seconds(10);

struct Other {
  const char* name;
  std::function<void(Communicator&)> call;
};

std::vector<Other> other_calls() {
  const auto reduce = [](std::size_t count) {
    return [count](Communicator& world) {
      std::vector<float> x(count, 1);
      all_reduce(world, x, Sum);
    };
  };
  return {{"all_reduce", reduce(1)},
          {"all_reduce", reduce(100000)},
          {"barrier", [](Communicator& world) { barrier(world); }},
          {"allocate", [](Communicator& world) {
             world.allocate(1 << 20);
             barrier(world);  // a failed allocation is reported by the next call
           }}};
}

void announce_leave(Communicator& world) {
  std::vector<std::int64_t> mine(3), all(3 * static_cast<std::size_t>(world.size()));
  world
      .all_gather(buffer_of(mine), buffer_of(all),
                  {.label = "entry barrier", .leaving = ExitCode::Done})
      .wait();
}

TEST(Leaving, ARankWhoseLoopEndsIsNamedWhateverTheOthersCall) {
  for (int size : {2, 3, 5, 8}) {
    for (const Other& other : other_calls()) {
      for (std::uint64_t seed = 1; seed <= 4; ++seed) {
        SCOPED_TRACE(std::string(other.name) + ", " + std::to_string(size) + " ranks");
        run_ranks(size,
                  [&](RankContext& rank) {
                    barrier(*rank.world);
                    const TimePoint start = rank.waiter->now();
                    if (rank.rank == 1) {
                      EXPECT_THROW(announce_leave(*rank.world), UnevenInput);
                      return;
                    }
                    try {
                      other.call(*rank.world);
                      ADD_FAILURE() << "the call ended";
                    } catch (const UnevenInput& error) {
                      EXPECT_EQ(error.peer(), 1);
                      EXPECT_THAT(error.what(), HasSubstr("rank 1's loop has ended"));
                    }
                    EXPECT_LT(rank.waiter->now() - start, std::chrono::milliseconds(100));
                  },
                  {.seed = seed});
      }
    }
  }
}

TEST(Leaving, IsNoticedBeforeASlowRankCalls) {
  run_ranks(3, [](RankContext& rank) {
    barrier(*rank.world);
    const TimePoint start = rank.waiter->now();
    if (rank.rank == 2) rank.waiter->wait_until([] { return false; }, start + kSlow);
    const auto call = [&] { rank.rank == 1 ? announce_leave(*rank.world) : barrier(*rank.world); };
    EXPECT_THROW(call(), UnevenInput);
    EXPECT_LT(rank.waiter->now() - start, rank.rank == 2 ? 2 * kSlow : kSlow / 100);
  });
}

TEST(Leaving, AllMayLeaveAndCallAgain) {
  for (int size : {1, 2, 3}) {
    run_ranks(size, [](RankContext& rank) {
      announce_leave(*rank.world);
      const Arena arena = rank.world->allocate(4096);
      const Buffer x = arena.buffer(0, 1024, DType::F32);
      float* const values = static_cast<float*>(x.data);
      std::fill_n(values, x.count, 1.0f);
      rank.world->all_reduce(x, Sum).wait();
      EXPECT_EQ(std::count(values, values + x.count, static_cast<float>(rank.size)), 1024);
    });
  }
}

TEST(Allocate, AgainstAnotherCallIsRefusedAtOnce) {
  for (std::uint64_t seed = 1; seed <= 10; ++seed) {
    run_ranks(3,
              [](RankContext& rank) {
                barrier(*rank.world);
                const TimePoint start = rank.waiter->now();
                const auto call = [&] {
                  if (rank.rank == 1) rank.world->allocate(1 << 20);
                  barrier(*rank.world);
                };
                EXPECT_THROW(call(), MismatchError);
                EXPECT_LT(rank.waiter->now() - start, std::chrono::milliseconds(100));
              },
              {.seed = seed});
  }
}

// The others must see why a rank could not allocate, and not that it made another call next.
TEST(Allocate, ARankWithoutMemoryTellsTheOthers) {
  for (std::uint64_t seed = 1; seed <= 4; ++seed) {
    run_ranks(3,
              [](RankContext& rank) {
                barrier(*rank.world);
                const TimePoint start = rank.waiter->now();
                const std::size_t bytes = rank.rank == 1 ? std::size_t{1} << 62 : 4096;
                if (rank.rank == 1) {
                  EXPECT_THROW(rank.world->allocate(bytes), ResourceError);
                } else {
                  rank.world->allocate(bytes);
                }
                EXPECT_THAT([&] { barrier(*rank.world); },
                            ::testing::ThrowsMessage<ResourceError>(HasSubstr("mmap of")));
                EXPECT_LT(rank.waiter->now() - start, std::chrono::milliseconds(100));
              },
              {.seed = seed});
  }
}

}  // namespace
}  // namespace trireme::comm
