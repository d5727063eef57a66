// Every model family through the whole command: images and masked text, trained, evaluated, planned
// and resumed, with equal bits on one rank and on two.
#include <signal.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <sstream>
#include <vector>

#include "tests/cli/command.h"

namespace trireme::testing {
namespace {

using ::testing::HasSubstr;
using Json = nlohmann::json;

// CIFAR-10 records whose class is the band that is brighter.
std::string records(int count) {
  std::string bytes;
  for (int i = 0; i < count; ++i) {
    const int label = i % 10;
    bytes += static_cast<char>(label);
    for (int at = 0; at < 3 * 32 * 32; ++at) {
      const int row = at % 1024 / 32;
      const int value = (row / 3 == label ? 200 : 60) + (at * 31 + i * 17) % 40;
      bytes += static_cast<char>(value);
    }
  }
  return bytes;
}

struct Family : ::testing::Test {
  Folder folder;
  std::string images_config() const {
    folder.write("data_batch_1.bin", records(60));
    folder.write("test_batch.bin", records(20));
    return folder.write("images.toml",
                        "[model]\nname = \"resnet18\"\nwidth = 4\n[data]\npath = \"" +
                            folder.path() +
                            "\"\n[batch]\nglobal = 16\nmicro = 4\n"
                            "[optimizer]\nname = \"sgd\"\n"
                            "[train]\nsteps = 6\nlearning_rate = 0.05\nwarmup = 0\n"
                            "validate_every = 3\nvalidate_sequences = 16\n");
  }
  std::string masked_config() const {
    std::string text;
    for (int i = 0; i < 1000; ++i) text += "line " + std::to_string(i * 7919 % 1000) + " of it\n";
    return folder.write("masked.toml",
                        "[model]\nname = \"bert\"\nlayers = 2\nheads = 2\nwidth = 32\nblock = 16\n"
                        "[data]\npath = \"" +
                            folder.write("data.txt", text) +
                            "\"\n[batch]\nglobal = 8\nmicro = 2\n"
                            "[train]\nsteps = 6\nvalidate_every = 3\nvalidate_sequences = 8\n");
  }
  CommandResult run(std::vector<std::string> arguments) const {
    const CommandResult result = trireme_command(std::move(arguments)).in(folder.path()).run(100);
    EXPECT_EQ(result.code, 0) << result.err << result.out;
    return result;
  }
  static std::vector<Json> events(const std::string& lines, const std::string& kind) {
    std::vector<Json> found;
    std::istringstream stream(lines);
    for (std::string line; std::getline(stream, line);) {
      Json event = Json::parse(line);
      if (event.at("event") == kind) found.push_back(std::move(event));
    }
    return found;
  }
  std::string hash(const std::string& run_folder) const {
    return hash_of_run(folder.file(run_folder));
  }
  // Stopped after some steps on two ranks with two lanes, continued on one: the same weights.
  void expect_resumed(const std::string& config) {
    const std::string name = "rest";
    {
      auto running = trireme_command({"train", config, "--out", name, "--ranks", "2", "--json",
                                      "--set", "train.lanes=2"})
                         .in(folder.path())
                         .start();
      ASSERT_TRUE(running.wait_for("\"step\":2,"));
      running.send(SIGTERM);
      const CommandResult stopped = running.wait(60);
      EXPECT_TRUE(stopped.code == 143 || stopped.code == 0) << stopped.err;
      if (stopped.code != 0) run({"train", "--resume", name});  // else it had ended
    }
    EXPECT_EQ(hash(name), hash("one"));
  }
  // Trains on one rank, on two, and with an interruption; then runs all other commands on the run.
  void expect_whole_command(const std::string& config, const std::string& items, double count) {
    const std::string out = run({"train", config, "--out", "one", "--json"}).out;
    run({"train", config, "--out", "two", "--ranks", "2", "--json"});
    EXPECT_EQ(hash("two"), hash("one"));
    expect_resumed(config);
    const auto steps = events(out, "step"), validations = events(out, "validation");
    ASSERT_EQ(steps.size(), 6u);
    ASSERT_EQ(validations.size(), 3u);
    EXPECT_GT(steps[2].at(items + "_per_second"), 0.0);
    EXPECT_EQ(validations[0].at(items), count);
    for (const Json& validation : validations) {
      EXPECT_GE(validation.at("accuracy"), 0.0);
      EXPECT_LE(validation.at("accuracy"), 1.0);
    }
    const auto evaluated = events(run({"eval", "two", "--json"}).out, "validation");
    ASSERT_EQ(evaluated.size(), 1u);
    EXPECT_EQ(evaluated[0].at("loss"), validations[2].at("loss"));
    EXPECT_EQ(evaluated[0].at("accuracy"), validations[2].at("accuracy"));
    const auto plans = events(run({"plan", config, "--json"}).out, "plan");
    EXPECT_GT(plans.at(0).at("predicted_activation_bytes"), 0);
    const CommandResult refused = trireme_command({"generate", "one"}).in(folder.path()).run(60);
    EXPECT_EQ(refused.code, 2);
    EXPECT_THAT(refused.err, HasSubstr("writes no text"));
  }
};

TEST_F(Family, ImagesThroughAResNet) {
  expect_whole_command(images_config(), "samples", 16);
  EXPECT_THAT(run({"plan", folder.file("images.toml")}).out, HasSubstr("60 images to train on"));
  const CommandResult text = run({"eval", "one"});
  EXPECT_THAT(text.out, HasSubstr("nats an image over 16 images"));
  EXPECT_THAT(text.out, HasSubstr("of the answers are right"));
}

TEST_F(Family, HiddenTextThroughAnEncoder) {
  // 15 % of 16 bytes are 2 masked ones per sequence, in 8 sequences.
  expect_whole_command(masked_config(), "tokens", 16);
}

TEST_F(Family, AKeyOfAnotherFamilyIsRefused) {
  const CommandResult result = trireme_command({"plan", images_config(), "--set", "model.layers=3"})
                                   .in(folder.path())
                                   .run(60);
  EXPECT_EQ(result.code, 2);
  EXPECT_THAT(result.err, HasSubstr("there is no key model.layers"));
  const CommandResult help = run({"train", "--help-config"});
  EXPECT_THAT(help.out, HasSubstr("model.name = \"resnet18\" has"));
  EXPECT_THAT(help.out, HasSubstr("data.augment"));
}

TEST_F(Family, ImagesThatAreNotThereAreRefused) {
  const std::string config = images_config();
  const CommandResult result = trireme_command({"train", config, "--data", folder.file("nothing")})
                                   .in(folder.path())
                                   .run(60);
  EXPECT_EQ(result.code, 2);
  EXPECT_THAT(result.err, HasSubstr("there is no file or folder"));
}

}  // namespace
}  // namespace trireme::testing
