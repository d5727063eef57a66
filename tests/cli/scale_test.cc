// trireme bench scale: real runs, simulated ones, and what is refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>
#include <thread>

#include "tests/cli/command.h"

namespace trireme::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

CommandResult scale(const Folder& folder, std::vector<std::string> more) {
  std::vector<std::string> words = {"bench", "scale", tiny_config(folder, "steps = 100\n")};
  words.insert(words.end(), more.begin(), more.end());
  return trireme_command(std::move(words)).in(folder.path()).run(120);
}

TEST(BenchScale, MeasuresSomeRanksAndSimulatesOthers) {
  Folder folder;
  const CommandResult result = scale(
      folder, {"--ranks", "1", "2", "2", "--simulate", "2", "3", "8", "--steps", "5", "--json"});
  ASSERT_EQ(result.code, 0) << result.out << result.err;
  std::vector<std::string> points;
  std::istringstream lines(result.out);
  for (std::string line; std::getline(lines, line);) {
    const auto event = nlohmann::json::parse(line);
    points.push_back(event.at("kind").get<std::string>() + " " +
                     std::to_string(event.at("ranks").get<int>()) + " " +
                     event.at("source").get<std::string>());
    EXPECT_GT(event.at("step_seconds"), 0.0) << line;
    EXPECT_GT(event.at("samples_per_second"), 0.0) << line;
    if (event.at("source") == "simulated") {
      EXPECT_GT(event.at("communication_seconds"), 0.0) << line;
    }
    if (event.at("ranks") == 1) {
      EXPECT_EQ(event.at("speedup"), 1.0) << line;
    }
  }
  // 8 ranks are too many for the 4 micro-batches of one batch.
  EXPECT_THAT(result.err, HasSubstr("left out: 8 ranks have only 4 micro-batches to share"));
  EXPECT_THAT(points, ElementsAre("strong 1 measured", "strong 2 measured", "strong 2 simulated",
                                  "strong 3 simulated", "weak 1 measured", "weak 2 measured",
                                  "weak 2 simulated", "weak 3 simulated", "weak 8 simulated"));
  EXPECT_THAT(read_file(folder.file("scale.svg")), HasSubstr("links of 25us,1GB/s"));
}

TEST(BenchScale, SaysWhatWasLeftOut) {
  Folder folder;
  const CommandResult result =
      scale(folder, {"--ranks", "1", "--simulate", "8", "--steps", "4", "--link", "1us,10GB/s"});
  ASSERT_EQ(result.code, 0) << result.out << result.err;
  EXPECT_THAT(result.out, HasSubstr("left out: 8 ranks have only 4 micro-batches to share"));
  EXPECT_THAT(result.out, HasSubstr("nothing hides communication"));
}

TEST(BenchScale, GivesItsRunsTheEnvironment) {
  Folder folder;
  std::string text = read_file(tiny_config(folder, "steps = 100\n"));
  text.replace(text.find("data.txt"), 8, "gone.txt");
  const std::string config = folder.write("gone.toml", text);
  const auto command =
      trireme_command({"bench", "scale", config, "--ranks", "1", "--simulate", "0", "--steps", "4"})
          .in(folder.path());
  EXPECT_EQ(Command(command).run(60).code, 2);
  const CommandResult result =
      Command(command).with("TRIREME_DATA_PATH", folder.file("data.txt")).run(60);
  EXPECT_EQ(result.code, 0) << result.out << result.err;
}

TEST(BenchScale, LeavesNothingBehindWhenItIsStopped) {
  Folder folder;
  const CommandResult result = [&] {
    auto running = trireme_command({"bench", "scale", tiny_config(folder, "steps = 100\n"),
                                    "--ranks", "1", "--simulate", "0", "--steps", "100000"})
                       .in(folder.path())
                       .with("TMPDIR", folder.path())
                       .start();
    EXPECT_TRUE(running.wait_for("1 rank, 100,000 steps"));
    const auto trains = [&] {
      for (const auto& entry : std::filesystem::recursive_directory_iterator(folder.path()))
        if (entry.path().filename() == "events.jsonl" && entry.file_size() > 0) return true;
      return false;
    };
    while (!trains()) std::this_thread::sleep_for(std::chrono::milliseconds(20));
    running.send(SIGINT);
    return running.wait(30);
  }();
  EXPECT_EQ(result.code, 130) << result.out << result.err;
  EXPECT_THAT(result.err, HasSubstr("stopped before all runs had ended"));
  EXPECT_EQ(result.left_behind, 0);
  for (const auto& entry : std::filesystem::directory_iterator(folder.path()))
    EXPECT_THAT(entry.path().filename().string(), Not(HasSubstr("trireme-"))) << entry.path();
}

TEST(BenchScale, RefusesWhatCannotTrain) {
  Folder folder;
  const CommandResult missing =
      trireme_command({"bench", "scale", "none.toml"}).in(folder.path()).run();
  EXPECT_EQ(missing.code, 2);
  EXPECT_THAT(missing.err, HasSubstr("there is no none.toml"));
  const CommandResult heads = scale(folder, {"--set", "model.heads=3", "--simulate", "0"});
  EXPECT_EQ(heads.code, 2);
  EXPECT_THAT(heads.err, HasSubstr("model.heads does not divide model.width"));
  EXPECT_THAT(heads.err, HasSubstr("training on 1 rank failed with exit code 2"));
  const CommandResult homeless =
      trireme_command({"bench", "scale", tiny_config(folder, "steps = 100\n")})
          .in(folder.path())
          .with("TMPDIR", folder.file("none"))
          .run();
  EXPECT_THAT(homeless.err, HasSubstr("cannot make a temporary folder: TMPDIR names none"));
  const CommandResult few = scale(folder, {"--steps", "3"});
  EXPECT_EQ(few.code, 2);
  EXPECT_THAT(few.err,
              HasSubstr("--steps 3 leaves no step to measure: the first 3 are not counted"));
}

}  // namespace
}  // namespace trireme::testing
