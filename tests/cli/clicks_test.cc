// Trains the shipped DLRM job on Criteo's click log, with embeddings on parameter servers, as real processes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/cli/command.h"

namespace trireme::testing {
namespace {

const std::string kClicks = TEST_DATA;
constexpr double kBaseRateEntropy = 0.5127;  // nats: 418 of 1,999 samples are clicks

class Clicks : public ::testing::Test {
 protected:
  CommandResult train(const std::string& run, int ranks, int servers,
                      std::vector<std::string> settings = {}) const {
    std::vector<std::string> arguments = {"train",
                                          TRIREME_SOURCE_DIR "/configs/dlrm-criteo-tiny.toml",
                                          "--data",
                                          kClicks,
                                          "--out",
                                          run,
                                          "--json",
                                          "--ranks",
                                          std::to_string(ranks)};
    settings.push_back("server.count=" + std::to_string(servers));
    for (const std::string& one : settings) arguments.insert(arguments.end(), {"--set", one});
    return trireme_command(arguments).in(folder_.path()).run(120);
  }
  static double last_validation(const CommandResult& result) {
    double loss = 1e9;
    std::istringstream lines(result.out);
    for (std::string line; std::getline(lines, line);) {
      const auto event = nlohmann::json::parse(line, nullptr, false);
      if (event.is_object() && event.value("event", "") == "validation") loss = event.at("loss");
    }
    return loss;
  }
  std::string hash(const std::string& run) const { return hash_of_run(folder_.file(run)); }
  Folder folder_;
};

TEST_F(Clicks, DlrmLearnsWithTheSameBitsOnAnyNumberOfWorkersAndServers) {
  const CommandResult first = train("1-1", 1, 1);
  ASSERT_EQ(first.code, 0) << first.out << first.err;
  EXPECT_EQ(first.left_behind, 0);
  const double loss = last_validation(first);
  EXPECT_LT(loss, kBaseRateEntropy);
  for (const auto& [ranks, servers] : {std::pair{2, 1}, {2, 2}}) {
    const std::string run = std::to_string(ranks) + "-" + std::to_string(servers);
    const CommandResult other = train(run, ranks, servers);
    ASSERT_EQ(other.code, 0) << other.out << other.err;
    EXPECT_EQ(last_validation(other), loss) << run;
    EXPECT_EQ(hash(run), hash("1-1")) << run;
  }
  // Without servers, out of the checkpoint.
  const CommandResult evaluated =
      trireme_command({"eval", "1-1", "--json"}).in(folder_.path()).run();
  ASSERT_EQ(evaluated.code, 0) << evaluated.out << evaluated.err;
  EXPECT_EQ(last_validation(evaluated), loss);
}

TEST_F(Clicks, ACheckpointGoesOnWithOtherNumbersOfWorkersAndServers) {
  const std::vector<std::string> constant = {"train.schedule=constant", "train.validate_every=0"};
  auto with = [&](const std::string& steps) {
    std::vector<std::string> all = constant;
    all.push_back("train.steps=" + steps);
    return all;
  };
  ASSERT_EQ(train("whole", 1, 2, with("40")).code, 0);
  ASSERT_EQ(train("part", 2, 3, with("25")).code, 0);
  const CommandResult resumed =
      trireme_command({"train", "--resume", "part", "--ranks", "1", "--set", "train.steps=40",
                       "--set", "server.count=2"})
          .in(folder_.path())
          .run();
  ASSERT_EQ(resumed.code, 0) << resumed.out << resumed.err;
  EXPECT_EQ(hash("part"), hash("whole"));
}

TEST_F(Clicks, WideAndDeepLearnsAndWorkersOnTheirOwnDo) {
  for (const std::vector<std::string>& settings :
       {std::vector<std::string>{"model.name=wide_and_deep"}, {"server.staleness=-1"}}) {
    const CommandResult run = train(settings[0], 2, 2, settings);
    ASSERT_EQ(run.code, 0) << run.out << run.err;
    EXPECT_LT(last_validation(run), kBaseRateEntropy) << settings[0];
  }
}

TEST_F(Clicks, WithoutServersTrainingIsRefusedWithAReason) {
  const CommandResult run = train("plain", 1, 1, {"parallel.sync=plain"});
  EXPECT_EQ(run.code, 2);
  EXPECT_THAT(run.err, ::testing::HasSubstr("Set parallel.sync = \"server\""));
}

}  // namespace
}  // namespace trireme::testing
