// Synchronous workers that are lost and replaced in any moment of a step: the servers end with the bits of
// workers that nobody has disturbed.
#include <gtest/gtest.h>

#include <cstring>

#include "trireme/ps/regroup_cluster_test.h"

namespace trireme::inline v0::ps::regroup {
namespace {

TEST(Regroup, TheServersEndWithTheBitsOfWorkersThatNobodyHasDisturbed) {
  Cluster alone(1);
  alone.run(1, 0);
  ASSERT_EQ(alone.history.size(), static_cast<std::size_t>(kSteps) + 1);
  int kept = 0, ahead = 0, rolled_back = 0, stale = 0;
  for (unsigned seed = 1; seed <= 400; ++seed) {
    Cluster cluster(seed, &alone.history);
    cluster.run(1 + static_cast<int>(seed % 4), 6);
    if (HasFailure()) FAIL() << "seed " << seed;
    for (int server = 0; server < kServers; ++server) {
      EXPECT_EQ(cluster.service(server).version(), kSteps);
      EXPECT_EQ(cluster.service(server).snapshot().memory.size(),
                alone.service(server).snapshot().memory.size());
      const std::size_t bytes =
          alone.history.back()[static_cast<std::size_t>(server)].memory.size();
      EXPECT_EQ(std::memcmp(cluster.service(server).snapshot().memory.data(),
                            alone.service(server).snapshot().memory.data(), bytes),
                0)
          << "seed " << seed << ", server " << server;
    }
    stale += cluster.num_stale;
    kept += cluster.num_kept, ahead += cluster.num_ahead, rolled_back += cluster.num_rolled_back;
  }
  // All ways of going on were gone.
  EXPECT_GT(kept, 400);
  EXPECT_GT(ahead, 40);
  EXPECT_GT(rolled_back, 40);
  EXPECT_GT(stale, 40);
}

}  // namespace
}  // namespace trireme::inline v0::ps::regroup
