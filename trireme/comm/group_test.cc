// Groups on the simulated network: split, subgroup, concurrent collectives, destruction.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <numeric>
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

// Every member brings its world rank plus one; checks the sum over `group`.
void expect_sum(Communicator& group, int world_rank, std::size_t count, double expected) {
  std::vector<double> x(count, world_rank + 1);
  all_reduce(group, x, Sum);
  EXPECT_EQ(x, std::vector<double>(count, expected)) << group.name();
}

TEST(Group, SplitOrdersByKeyThenRankAndLeavesOutWhoHasNoColor) {
  for (int size : {1, 2, 3, 4, 5, 8}) {
    run_ranks(size,
              [&](RankContext& rank) {
                const int color = rank.rank == 2 ? -1 : rank.rank % 2;
                const auto group = rank.world->split(color, -rank.rank);
                ASSERT_EQ(group == nullptr, color < 0);
                if (!group) return;
                std::vector<int> members;
                for (int r = size - 1; r >= 0; --r) {
                  if (r != 2 && r % 2 == color) members.push_back(r);
                }
                EXPECT_EQ(group->size(), static_cast<int>(members.size()));
                EXPECT_EQ(members[static_cast<std::size_t>(group->rank())], rank.rank);
                EXPECT_EQ(group->name(), "world/" + std::to_string(color));
                std::vector<std::int32_t> mine{rank.rank}, all(members.size());
                all_gather(*group, mine, all);
                EXPECT_EQ(all, members);
              },
              {.seed = static_cast<std::uint64_t>(size)});
  }
}

// Every rank uses its row, its column and the world, in a different order on each rank.
TEST(Group, RowsColumnsAndTheWorldRunAtTheSameTime) {
  for (std::uint64_t seed = 1; seed <= 40; ++seed) {
    for (const auto& [rows, columns] : {std::pair{2, 2}, std::pair{2, 3}, std::pair{2, 4}}) {
      const int size = rows * columns;
      run_ranks(size,
                [&, columns = columns](RankContext& rank) {
                  const auto row = rank.world->split(rank.rank / columns, 0);
                  const auto column = rank.world->split(rank.rank % columns, 0);
                  Communicator* const groups[] = {row.get(), column.get(), rank.world.get()};
                  const std::size_t counts[] = {1, 700, 20000};
                  std::vector<std::vector<float>> x;
                  std::vector<Work> works;
                  for (int i = 0; i < 9; ++i) {
                    const int which = (i + rank.rank) % 3;
                    x.emplace_back(counts[i / 3], float(1 << rank.rank));
                    works.push_back(async::all_reduce(*groups[which], x.back(), Sum));
                  }
                  Work::all(works).wait();
                  for (int i = 0; i < 9; ++i) {
                    const int which = (i + rank.rank) % 3;
                    float expected = 0;
                    for (int r = 0; r < rank.size; ++r) {
                      const bool in =
                          which == 2 || (which == 0 ? r / columns == rank.rank / columns
                                                    : r % columns == rank.rank % columns);
                      if (in) expected += float(1 << r);
                    }
                    EXPECT_EQ(x[i], std::vector<float>(counts[i / 3], expected)) << "seed " << seed;
                  }
                },
                {.seed = seed});
    }
  }
}

TEST(Group, SubgroupsConcernTheirMembersAlone) {
  for (std::uint64_t seed = 1; seed <= 40; ++seed) {
    run_ranks(5,
              [&](RankContext& rank) {
                const std::vector<std::vector<int>> sets = {{2, 1, 0}, {1, 2, 3}, {3, 0}, {2}};
                std::vector<std::shared_ptr<Communicator>> groups;
                for (const auto& set : sets) {
                  const auto at = std::find(set.begin(), set.end(), rank.rank);
                  if (at == set.end()) continue;
                  groups.push_back(rank.world->subgroup(set, "overlapping"));
                  EXPECT_EQ(groups.back()->rank(), at - set.begin());
                  expect_sum(*groups.back(), rank.rank, 1 + 999 * (seed % 2),
                             std::accumulate(set.begin(), set.end(), 0) + int(set.size()));
                }
                barrier(*rank.world);  // rank 4 is in none of them
              },
              {.seed = seed});
  }
}

TEST(Group, GroupsOfGroupsAndMessagesInThem) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    run_ranks(8,
              [&](RankContext& rank) {
                const auto half = rank.world->split(rank.rank / 4, 0);
                const auto pair = half->split(half->rank() % 2, -half->rank());
                ASSERT_EQ(pair->size(), 2);
                expect_sum(*half, rank.rank, 3000, rank.rank < 4 ? 10 : 26);
                const int base = rank.rank / 4 * 4 + rank.rank % 2;
                expect_sum(*pair, rank.rank, 3000, 2 * base + 4);
                std::vector<float> out(5000, float(rank.rank)), in(5000);
                const Work works[] = {pair->send(buffer_of(out), 1 - pair->rank(), 3),
                                      pair->recv(buffer_of(in), 1 - pair->rank(), 3)};
                Work::all(works).wait();
                EXPECT_EQ(in[4999], float(2 * base + 2 - rank.rank));
              },
              {.seed = seed});
  }
}

TEST(Group, ArenasBelongToTheGroup) {
  for (std::uint64_t seed = 1; seed <= 10; ++seed) {
    run_ranks(4,
              [&](RankContext& rank) {
                const auto row = rank.world->split(rank.rank / 2, 0);
                const Arena mine = row->allocate(4096);
                const Arena shared = rank.world->allocate(4096);
                Buffer x = mine.buffer(0, 1024, DType::F32), y = shared.buffer(0, 1024, DType::F32);
                for (int i = 0; i < 1024; ++i) static_cast<float*>(x.data)[i] = float(rank.rank);
                for (int i = 0; i < 1024; ++i) static_cast<float*>(y.data)[i] = float(rank.rank);
                const Work works[] = {row->all_reduce(x, Sum), rank.world->all_reduce(y, Sum)};
                Work::all(works).wait();
                EXPECT_EQ(static_cast<float*>(x.data)[1023], rank.rank < 2 ? 1.0f : 5.0f);
                EXPECT_EQ(static_cast<float*>(y.data)[1023], 6.0f);
              },
              {.seed = seed});
  }
}

TEST(Group, ToLetGoOfAGroupDisturbsNobody) {
  for (std::uint64_t seed = 1; seed <= 40; ++seed) {
    run_ranks(4,
              [&](RankContext& rank) {
                for (int round = 0; round < 5; ++round) {
                  auto row = rank.world->split(rank.rank / 2, 0);
                  const auto column = rank.world->split(rank.rank % 2, 0);
                  if (rank.rank % 2 == round % 2) row = nullptr;  // its set-up may still run
                  expect_sum(*column, rank.rank, 2000, rank.rank % 2 == 0 ? 4 : 6);
                }
                const auto arena =
                    rank.world->split(0, 0)->allocate(100000);  // the group is destroyed at once
                expect_sum(*rank.world, rank.rank, 2000, 10);
                EXPECT_FALSE(rank.world->failure());
              },
              {.seed = seed});
  }
}

TEST(Group, AFailureInOneGroupBreaksAllWithTheFirstError) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    std::atomic<int> seen{0};
    run_ranks(4,
              [&](RankContext& rank) {
                const auto row = rank.world->split(rank.rank / 2, 0);
                const auto column = rank.world->split(rank.rank % 2, 0);
                std::vector<float> x(10), y(10);
                if (rank.rank < 2) return rank.waiter->sleep(std::chrono::seconds(1));
                try {
                  rank.rank == 2 ? broadcast(*row, x, 0) : all_reduce(*row, x, Sum);
                  ADD_FAILURE();
                } catch (const MismatchError& error) {
                  ++seen;
                  EXPECT_THAT(error.what(), HasSubstr("rank 2 called broadcast"));
                  EXPECT_THAT(error.what(), HasSubstr("rank 3 called all_reduce"));
                  EXPECT_THAT(error.what(), HasSubstr("in group world/1"));
                  EXPECT_EQ(error.peer(), 5 - rank.rank);
                }
                EXPECT_THROW(all_reduce(*column, y, Sum), MismatchError);
                EXPECT_THROW(barrier(*rank.world), MismatchError);
                EXPECT_THROW((void)rank.world->split(0, 0), MismatchError);
              },
              {.seed = seed});
    EXPECT_EQ(seen, 2);
  }
}

TEST(Group, ADeadlineNamesTheWorldsRank) {
  std::atomic<int> seen{0};
  run_ranks(4, [&](RankContext& rank) {
    const auto row = rank.world->split(rank.rank / 2, 0);
    if (rank.rank != 2) return rank.waiter->sleep(std::chrono::minutes(2));
    try {
      barrier(*row);
    } catch (const TimeoutError& error) {
      ++seen;
      EXPECT_EQ(error.peer(), 3);
      EXPECT_EQ(error.rank(), 2);
      EXPECT_THAT(error.what(), HasSubstr("waited 30.0 s for rank 3 in group world/1"));
    }
  });
  EXPECT_EQ(seen, 1);
}

TEST(Group, ToLetGoOfAnOpenCallIsAFailure) {
  run_ranks(2, [](RankContext& rank) {
    auto group = rank.world->split(0, 0);
    barrier(*rank.world);
    if (rank.rank == 1) return rank.waiter->sleep(std::chrono::seconds(1));
    std::vector<float> x(10);
    const Work open = async::all_reduce(*group, x, Sum);
    group.reset();
    EXPECT_THROW(open.wait(), PeerLost);
    EXPECT_THROW(barrier(*rank.world), PeerLost);
  });
}

TEST(Group, GroupsEndWithTheirWorld) {
  run_ranks(2, [](RankContext& rank) {
    const auto group = rank.world->split(0, 0);
    barrier(*group);
    rank.world.reset();
    EXPECT_THROW(barrier(*group), PeerLost);
  });
}

TEST(Group, ErrorsNameTheRankInTheWorld) {
  run_ranks(4, [](RankContext& rank) {
    const auto group = rank.world->split(rank.rank / 2, rank.rank);
    std::vector<float> x(1);
    try {
      (void)group->broadcast(buffer_of(x), 7);
      ADD_FAILURE() << "there is no root 7";
    } catch (const ConfigError& error) {
      EXPECT_EQ(error.rank(), rank.rank);
    }
    barrier(*rank.world);
  });
}

TEST(Group, AnAlgorithmForOtherMemoryIsRefusedWithTheWorldsRank) {
  run_ranks(4, [](RankContext& rank) {
    const auto group = rank.world->split(rank.rank / 2, rank.rank);
    std::vector<float> x(1);
    try {
      (void)group->broadcast(buffer_of(x), 0, {.algorithm = "nccl-native"});
      ADD_FAILURE() << "there is no GPU";
    } catch (const ConfigError& error) {
      EXPECT_EQ(error.rank(), rank.rank);
    }
    barrier(*rank.world);
  });
}

TEST(Group, RefusesWrongMembers) {
  run_ranks(3, [](RankContext& rank) {
    const int beyond[] = {0, 1, 3}, twice[] = {0, 1, 2, 2}, others[] = {(rank.rank + 1) % 3};
    EXPECT_THROW((void)rank.world->subgroup(beyond, "x"), ConfigError);
    EXPECT_THROW((void)rank.world->subgroup(twice, "x"), ConfigError);
    EXPECT_THROW((void)rank.world->subgroup(others, "x"), ConfigError);
    barrier(*rank.world);
  });
}

}  // namespace
}  // namespace trireme::comm
