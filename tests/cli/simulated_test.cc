// Training on a simulated cluster, and with an all-reduce that the program registered itself: the
// weights are those of every other layout, bit for bit.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/cli/command.h"

namespace trireme::testing {
namespace {

using ::testing::HasSubstr;
using Arguments = std::vector<std::string>;

// Trains in `folder`/NAME with `more` arguments; returns the weights.
std::string weights(const Folder& folder, const std::string& config, const std::string& name,
                    const Arguments& more, std::string program = "") {
  Arguments arguments = {"train", config, "--out", name};
  arguments.insert(arguments.end(), more.begin(), more.end());
  Command command = trireme_command(arguments);
  if (!program.empty()) {
    arguments.insert(arguments.begin(), std::move(program));
    command = cached_command(arguments);
  }
  const CommandResult result = command.in(folder.path()).run();
  EXPECT_EQ(result.code, 0) << result.out << result.err;
  return read_file(folder.file(name + "/checkpoint/step-00000006/model.safetensors"));
}

TEST(Simulated, SixteenRanksGiveTheWeightsOfTwo) {
  Folder folder;
  const std::string config = tiny_config(folder, "steps = 6\nvalidate_every = 3\n");
  const Arguments sizes = {"--set", "batch.global=16", "--set", "batch.micro=1", "--ranks"};
  const auto with = [&](std::initializer_list<std::string> more) {
    Arguments all = sizes;
    all.insert(all.end(), more);
    return all;
  };
  const std::string two = weights(folder, config, "two", with({"2"}));
  EXPECT_GT(two.size(), 1000u);
  EXPECT_EQ(weights(folder, config, "sixteen",
                    with({"16", "--transport", "sim", "--link", "25us,1GB/s"})),
            two);
  EXPECT_EQ(
      weights(folder, config, "three", with({"3", "--transport", "sim", "--algorithm", "tree"})),
      two);
}

// Each bucket waits for the link at least once, however fast the machine is.
TEST(Simulated, ASlowLinkTakesItsTimeOnTheVirtualClock) {
  Folder folder;
  const std::string config = tiny_config(folder, "steps = 4\nvalidate_every = 0\n");
  const CommandResult result = trireme_command({"train", config, "--ranks", "4", "--transport",
                                                "sim", "--link", "50ms,1GB/s", "--json"})
                                   .in(folder.path())
                                   .run();
  ASSERT_EQ(result.code, 0) << result.err;
  std::istringstream lines(result.out);
  int steps = 0;
  for (std::string line; std::getline(lines, line);) {
    const auto event = nlohmann::json::parse(line);
    if (event["event"] != "step") continue;
    ++steps;
    EXPECT_GE(event["communication_seconds"], 0.05) << line;
    EXPECT_GE(event["step_seconds"], event["communication_seconds"]) << line;
  }
  EXPECT_EQ(steps, 4);
  EXPECT_THAT(result.err, HasSubstr("4 simulated ranks take turns"));
}

TEST(Simulated, ALinkThatIsNoneIsUsage) {
  Folder folder;
  const CommandResult result = trireme_command({"train", tiny_config(folder), "--ranks", "4",
                                                "--transport", "sim", "--link", "fast"})
                                   .in(folder.path())
                                   .run();
  EXPECT_EQ(result.code, 2);
  EXPECT_THAT(result.err, HasSubstr("25us,1GB/s"));
}

TEST(Simulated, ALinkOfARealNetworkIsUsage) {
  Folder folder;
  const CommandResult result =
      trireme_command({"train", tiny_config(folder), "--ranks", "2", "--link", "1ms,1GB/s"})
          .in(folder.path())
          .run();
  EXPECT_EQ(result.code, 2);
  EXPECT_THAT(result.err, HasSubstr("--link is a simulated network's, but the transport is auto"));
}

TEST(OwnAllReduce, TrainsUnderItsName) {
  Folder folder;
  const std::string config = tiny_config(folder, "steps = 6\nvalidate_every = 0\n");
  const std::string ring = weights(folder, config, "ring",
                                   {"--ranks", "2", "--transport", "tcp", "--algorithm", "ring"});
  EXPECT_EQ(weights(folder, config, "mine",
                    {"--ranks", "2", "--transport", "tcp", "--algorithm", "mine"}, OWN_TRAINER),
            ring);
  const CommandResult stranger =
      trireme_command({"train", config, "--algorithm", "mine"}).in(folder.path()).run();
  EXPECT_EQ(stranger.code, 2) << stranger.err;
  EXPECT_THAT(stranger.err, HasSubstr("comm.algorithm"));
}

}  // namespace
}  // namespace trireme::testing
