#include "trireme/comm/mesh.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trireme/base/error.h"
#include "trireme/comm/collectives.h"
#include "trireme/testing/run_ranks.h"

namespace trireme::comm {
namespace {

TEST(Mesh, DataAxisIsTheWorldAndTheOthersAreAlone) {
  testing::run_ranks(3, [](testing::RankContext& rank) {
    const Mesh mesh(*rank.world, {.data = 3});
    EXPECT_EQ(mesh.size(Axis::Data), 3);
    EXPECT_EQ(mesh.size(Axis::Tensor), 1);
    EXPECT_EQ(mesh.coordinate(Axis::Data), rank.rank);
    EXPECT_EQ(mesh.coordinate(Axis::Pipeline), 0);
    EXPECT_EQ(&mesh.along(Axis::Data), rank.world.get());
    EXPECT_EQ(&mesh.over({Axis::Data, Axis::Shard}), rank.world.get());
    EXPECT_EQ(mesh.along(Axis::Shard).size(), 1);
    std::vector<float> x{float(rank.rank)};
    all_reduce(mesh.along(Axis::Tensor), x, Mean);
    EXPECT_EQ(x[0], float(rank.rank));
  });
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
    EXPECT_THROW(Mesh(*rank.world, {.tensor = 2}), ConfigError);
  });
}

}  // namespace
}  // namespace trireme::comm
