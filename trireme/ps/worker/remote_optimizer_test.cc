#include "trireme/ps/worker/remote_optimizer.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include "trireme/net/sim/sim_channels.h"
#include "trireme/ps/server/server.h"

namespace trireme::inline v0::ps {
namespace {

// The rows of a checkpoint are the servers' once these have them.
TEST(RemoteOptimizer, AWorkerDoesNotKeepTheRowsThatItHasLoaded) {
  net::SimNetwork network(2);
  net::SimChannels channels(network);
  bool ended = false;
  network.run([&](int rank) {
    const auto waiter = network.waiter(rank);
    if (rank == 1) {
      const auto acceptor = channels.listen(1);
      ParameterServer(waiter, *acceptor, {}).run([&] { return ended; });
      return;
    }
    waiter->sleep(std::chrono::milliseconds(1));  // the server listens
    {
      RemoteOptimizer optimizer(
          Sgd{}, {.staleness = -1}, waiter,
          {.count = 1, .dial = [&](int) { return channels.dial(0, "sim:1"); }});
      const auto rows = optimizer.set_tables({{.name = "items", .width = 3, .bound = 0.5}});
      optimizer.attach({}, {});
      for (NamedShard& shard : rows->state()) {
        const bool is_rows = shard.shape.size() == 2;
        shard.load(is_rows ? at::zeros({5, 3}, shard.local.options())
                           : at::arange(5, shard.local.options()));
      }
      optimizer.set_step_count(4);
      const std::weak_ptr<const std::vector<SavedTable>> loaded = rows->first_rows();
      EXPECT_FALSE(loaded.expired());
      optimizer.start();
      EXPECT_TRUE(loaded.expired());
      const std::vector<NamedShard> saved = rows->state();
      ASSERT_FALSE(saved.empty());
      EXPECT_EQ(saved[0].name, "items.ids");
      EXPECT_EQ(saved[0].local.numel(), 5);
    }
    ended = true;
    network.waiter(1)->wake();
  });
}

}  // namespace
}  // namespace trireme::inline v0::ps
