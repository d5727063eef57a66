#include "trireme/comm/mesh.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "trireme/base/error.h"
#include "trireme/comm/collectives.h"
#include "trireme/testing/run_ranks.h"

namespace trireme::comm {
namespace {

constexpr Axis kAxes[] = {Axis::Pipeline, Axis::Data, Axis::Shard, Axis::Context, Axis::Tensor};

// Every shape without experts that has `size` ranks.
std::vector<MeshShape> factorisations(int size) {
  std::vector<MeshShape> shapes;
  for (int p = 1; p <= size; ++p)
    for (int d = 1; d <= size; ++d)
      for (int s = 1; s <= size; ++s)
        for (int c = 1; c <= size; ++c)
          for (int t = 1; t <= size; ++t)
            if (p * d * s * c * t == size) shapes.push_back({p, d, s, c, t});
  return shapes;
}

int rank_at(const MeshShape& shape, const std::array<int, 5>& at) {
  int rank = 0;
  for (std::size_t i = 0; i < 5; ++i) rank = rank * shape.along(kAxes[i]) + at[i];
  return rank;
}

// The ranks whose coordinates differ from this rank's in `axes` only.
std::vector<std::int32_t> expected_members(const Mesh& mesh, unsigned axes) {
  std::vector<std::int32_t> ranks;
  std::array<int, 5> at;
  const std::function<void(std::size_t)> visit = [&](std::size_t axis) {
    if (axis == 5) return ranks.push_back(rank_at(mesh.shape(), at));
    const bool moves = axes >> axis & 1;
    const int own = mesh.coordinate(kAxes[axis]);
    for (int i = moves ? 0 : own; i < (moves ? mesh.size(kAxes[axis]) : own + 1); ++i) {
      at[axis] = i;
      visit(axis + 1);
    }
  };
  visit(0);
  return ranks;
}

void expect_members(Communicator& group, int world_rank, const std::vector<std::int32_t>& ranks) {
  ASSERT_EQ(group.size(), static_cast<int>(ranks.size())) << group.name();
  std::vector<std::int32_t> mine{world_rank}, all(ranks.size());
  all_gather(group, mine, all);
  EXPECT_EQ(all, ranks) << group.name();
}

TEST(Mesh, EveryFactorisationOfEightHasTheRightGroups) {
  const auto shapes = factorisations(8);
  ASSERT_EQ(shapes.size(), 35u);
  for (const MeshShape& shape : shapes) {
    testing::run_ranks(8, [&](testing::RankContext& rank) {
      const Mesh mesh(*rank.world, shape);
      std::array<int, 5> at;
      for (std::size_t i = 0; i < 5; ++i) {
        at[i] = mesh.coordinate(kAxes[i]);
        EXPECT_LT(at[i], mesh.size(kAxes[i]));
        expect_members(mesh.along(kAxes[i]), rank.rank, expected_members(mesh, 1u << i));
        for (std::size_t j = 0; j < i; ++j) {
          expect_members(mesh.over({kAxes[i], kAxes[j]}), rank.rank,
                         expected_members(mesh, 1u << i | 1u << j));
        }
      }
      EXPECT_EQ(rank_at(shape, at), rank.rank);
      EXPECT_EQ(&mesh.over({Axis::Tensor, Axis::Pipeline, Axis::Shard, Axis::Data, Axis::Context}),
                rank.world.get());
      EXPECT_EQ(mesh.over({}).size(), 1);
    });
  }
}

TEST(Mesh, OddSizesAndOne) {
  for (const MeshShape& shape : {MeshShape{}, MeshShape{.data = 5}, MeshShape{.tensor = 3},
                                 MeshShape{.pipeline = 2, .shard = 3}}) {
    testing::run_ranks(shape.size(), [&](testing::RankContext& rank) {
      const Mesh mesh(*rank.world, shape);
      for (std::size_t i = 0; i < 5; ++i) {
        expect_members(mesh.along(kAxes[i]), rank.rank, expected_members(mesh, 1u << i));
      }
    });
  }
}

// Rank (((p D + d) S + s) C + c) T + t; consecutive values of d S + s hold different experts.
TEST(Mesh, ExpertsAreSharedByConsecutiveRanksOfDataAndShard) {
  const auto check = [](const MeshShape& shape, int data, int shard) {
    testing::run_ranks(shape.size(), [&](testing::RankContext& rank) {
      const Mesh mesh(*rank.world, shape);
      EXPECT_EQ(mesh.size(Axis::Data), data);
      EXPECT_EQ(mesh.size(Axis::Shard), shard);
      EXPECT_EQ(mesh.size(Axis::Expert), shape.expert);
      const int inner = shape.context * shape.tensor, place = rank.rank / inner;
      EXPECT_EQ(mesh.coordinate(Axis::Expert), place % shape.expert);
      std::vector<std::int32_t> together, same;
      for (int other = 0; other < shape.size(); ++other) {
        const int theirs = other / inner;
        if (other % inner != rank.rank % inner) continue;
        if (theirs / shape.expert == place / shape.expert) together.push_back(other);
        if (theirs % shape.expert == place % shape.expert &&
            theirs / (shape.data * shape.shard) == place / (shape.data * shape.shard))
          same.push_back(other);
      }
      expect_members(mesh.along(Axis::Expert), rank.rank, together);
      expect_members(mesh.over({Axis::Data, Axis::Shard}), rank.rank, same);
    });
  };
  check({.data = 4, .expert = 2}, 2, 1);
  check({.pipeline = 2, .data = 4, .expert = 4}, 1, 1);
  check({.data = 2, .shard = 4, .expert = 2}, 2, 2);
  check({.data = 4, .shard = 2, .expert = 4}, 2, 1);
  check({.data = 2, .context = 2, .tensor = 2, .expert = 2}, 1, 1);
}

TEST(Mesh, DataAxisAloneIsTheWorld) {
  testing::run_ranks(3, [](testing::RankContext& rank) {
    const Mesh mesh(*rank.world, {.data = 3});
    EXPECT_EQ(&mesh.along(Axis::Data), rank.world.get());
    EXPECT_EQ(&mesh.over({Axis::Data, Axis::Shard}), rank.world.get());
    std::vector<float> x{float(rank.rank)};
    all_reduce(mesh.along(Axis::Tensor), x, Mean);
    EXPECT_EQ(x[0], float(rank.rank));
  });
}

TEST(Mesh, AxesRunAtTheSameTime) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    testing::run_ranks(
        8,
        [](testing::RankContext& rank) {
          const Mesh mesh(*rank.world, {.pipeline = 2, .data = 2, .tensor = 2});
          std::vector<std::vector<float>> x(3, std::vector<float>(5000, 1.0f));
          std::vector<Work> works;
          const Axis axes[] = {Axis::Tensor, Axis::Data, Axis::Pipeline};
          for (std::size_t i = 0; i < 3; ++i) {
            const std::size_t which = (i + static_cast<std::size_t>(rank.rank)) % 3;
            works.push_back(async::all_reduce(mesh.along(axes[which]), x[which], Sum));
          }
          Work::all(works).wait();
          for (const auto& one : x) EXPECT_EQ(one, std::vector<float>(5000, 2.0f));
        },
        {.seed = seed});
  }
}

TEST(Mesh, RefusesShapesWithTheArithmetic) {
  testing::run_ranks(2, [](testing::RankContext& rank) {
    try {
      Mesh(*rank.world, {.pipeline = 2, .data = 3});
      ADD_FAILURE();
    } catch (const ConfigError& error) {
      EXPECT_THAT(error.what(), ::testing::HasSubstr("pipeline 2 x data 3 x shard 1 x context 1 x "
                                                     "tensor 1 = 6 ranks, but 2 are there"));
    }
    EXPECT_THROW(Mesh(*rank.world, {.pipeline = -1, .data = -2}), ConfigError);
    EXPECT_THROW(Mesh(*rank.world, {.data = 2, .expert = 0}), ConfigError);
    EXPECT_THAT(
        [&] { Mesh(*rank.world, {.data = 2, .expert = 0}); },
        ::testing::ThrowsMessage<ConfigError>(::testing::HasSubstr("expert axis has 0 ranks")));
    try {
      Mesh(*rank.world, {.data = 2, .expert = 4});
      ADD_FAILURE();
    } catch (const ConfigError& error) {
      EXPECT_THAT(error.what(), ::testing::HasSubstr("expert 4 does not divide data 2 x shard 1"));
    }
  });
}

}  // namespace
}  // namespace trireme::comm
