// Twenty servers that are killed under load, one after the other.
#include "tests/cli/failover.h"

namespace trireme::testing {
namespace {

TEST_F(FailOver, TwentyKilledServersLoseNothingAndStopTheJobForASecondAtMost) {
  const std::string config =
      tiny_config(folder_, "steps = 12000\nvalidate_every = 0\nschedule = \"constant\"\n");
  ASSERT_EQ(train(config, "plain", {}).run(600).code, 0);
  auto job =
      train(config, "served", {"parallel.sync=server", "server.count=3", "server.replicas=2"})
          .start();
  ASSERT_TRUE(job.wait_for("expected time")) << job.output();
  for (int i = 0; i < 20; ++i) {
    kill_process(job, "server", i * 7 % 3);
    await(job, "is back, with a copy of shard", 2 * (i + 1));
  }
  const CommandResult result = job.wait(900);
  EXPECT_EQ(result.code, 0) << result.out << result.err;
  EXPECT_EQ(result.left_behind, 0);
  EXPECT_EQ(hash("served"), hash("plain"));
  const auto steps = step_seconds("served");
  ASSERT_EQ(steps.size(), 12000u);
  const double longest = *std::max_element(steps.begin(), steps.end());
  std::printf("longest step: %.3f s\n", longest);
  EXPECT_LE(longest, 1.0);
}

}  // namespace
}  // namespace trireme::testing
