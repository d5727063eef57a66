// memory.recompute = "auto" and memory.offload_activations: less memory, the same weights.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/cli/command.h"

namespace trireme::testing {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;
using Json = nlohmann::json;

class Memory : public ::testing::Test {
 protected:
  // Activations take most of its memory.
  Memory()
      : config_(folder_.write("deep.toml",
                              "[model]\nname = \"gpt\"\nlayers = 12\nheads = 4\nwidth = 128\n"
                              "block = 64\ndropout = 0.1\n[data]\npath = \"" +
                                  text() +
                                  "\"\n[batch]\nglobal = 32\nmicro = 8\n"
                                  "[train]\nsteps = 2\nwarmup = 0\nvalidate_sequences = 8\n"
                                  "validate_every = 0\nsample_bytes = 0\n")) {}

  std::string text() const {
    std::string words;
    for (int i = 0; i < 2000; ++i) words += "ship " + std::to_string(i % 97) + " rows on\n";
    return folder_.write("text.txt", words);
  }
  CommandResult trireme(std::vector<std::string> arguments) const {
    return trireme_command(std::move(arguments)).in(folder_.path()).run(150);
  }
  Json plan(std::vector<std::string> set) const {
    std::vector<std::string> words = {"plan", config_, "--json"};
    for (const std::string& one : set) words.insert(words.end(), {"--set", one});
    const CommandResult result = trireme(words);
    EXPECT_EQ(result.code, 0) << result.err;
    return Json::parse(result.out);
  }
  std::int64_t bytes(const std::string& policy) const {
    return plan({"memory.recompute=" + policy}).at("predicted_memory_bytes");
  }
  // The weights' hash and the peak memory.
  struct Run {
    std::string hash, out;
    double measured_bytes = 0;
  };
  Run train(const std::string& name, std::vector<std::string> more) const {
    std::vector<std::string> words = {"train", config_, "--out", name, "--json"};
    words.insert(words.end(), more.begin(), more.end());
    const CommandResult result = trireme(words);
    EXPECT_EQ(result.code, 0) << result.out << result.err;
    Run run{.hash = hash_of_run(folder_.file(name)), .out = result.err};
    std::istringstream lines(result.out);
    for (std::string line; std::getline(lines, line);)
      if (const Json event = Json::parse(line); event.contains("measured_memory_bytes"))
        run.measured_bytes = event.at("measured_memory_bytes");
    return run;
  }

  Folder folder_;
  const std::string config_;
};

TEST_F(Memory, AutoFitsIntoTheLimitAtTheLeastTimeAndKeepsTheBits) {
  const std::int64_t none = bytes("none"), full = bytes("full");
  ASSERT_GT(none, full + 30'000'000);
  const std::string limit = "memory.limit=" + std::to_string((none + full) / 2);
  const Json planned = plan({limit, "memory.recompute=auto"});
  EXPECT_LE(planned.at("predicted_memory_bytes"), (none + full) / 2);
  EXPECT_GT(planned.at("predicted_memory_bytes"), (none + full) / 2 - 15'000'000);
  const std::string policy = planned.at("recompute");
  EXPECT_THAT(policy, AllOf(ContainsRegex("none\\*|selective\\*"), HasSubstr("full*")));

  const Run plain = train("plain", {});
  const Run chosen =
      train("chosen", {"--set", limit, "--set", "memory.recompute=auto", "--ranks", "2"});
  EXPECT_EQ(chosen.hash, plain.hash);
  EXPECT_THAT(chosen.out,
              AllOf(HasSubstr("memory.recompute = \"auto\": the least time with at most"),
                    HasSubstr("at most at a time"), HasSubstr("layer.0")));
  EXPECT_THAT(read_file(folder_.file("chosen/config.toml")), HasSubstr("recompute = \"auto\""));
  // The run can be read, evaluated and continued as any other.
  EXPECT_EQ(trireme({"eval", "chosen"}).code, 0);
  const CommandResult resumed = trireme({"train", "--resume", "chosen", "--set", "train.steps=3"});
  EXPECT_EQ(resumed.code, 0) << resumed.err;
}

TEST_F(Memory, AutoNeedsALimitThatSomethingFits) {
  const CommandResult none = trireme({"plan", config_, "--set", "memory.recompute=auto"});
  EXPECT_EQ(none.code, 2);
  EXPECT_THAT(none.err, AllOf(HasSubstr("fit into memory.limit, and there is none"),
                              HasSubstr("Set memory.limit")));
  const CommandResult small = trireme({"train", config_, "--out", "run", "--set",
                                       "memory.recompute=auto", "--set", "memory.limit=1e6"});
  EXPECT_EQ(small.code, 2) << small.out;
  EXPECT_THAT(small.err, HasSubstr("a rank is predicted to take"));
  const CommandResult both =
      trireme({"plan", config_, "--set", "memory.recompute=auto", "--set", "memory.limit=1GB",
               "--set", "memory.offload_activations=" + folder_.path()});
  EXPECT_EQ(both.code, 2);
  EXPECT_THAT(both.err, HasSubstr("cannot be combined with memory.offload_activations"));
}

// It needs terabytes, more than any test machine has.
TEST_F(Memory, AModelBeyondTheMachineIsPlannedAndNotStarted) {
  const std::vector<std::string> wide = {config_, "--ranks", "2", "--set", "model.width=200000"};
  const auto with = [&](const std::string& command, const std::vector<std::string>& more) {
    std::vector<std::string> words = wide;
    words.insert(words.begin(), command);
    words.insert(words.end(), more.begin(), more.end());
    return trireme(words);
  };
  const CommandResult planned = with("plan", {});
  EXPECT_EQ(planned.code, 0) << planned.err;
  EXPECT_THAT(planned.out,
              AllOf(HasSubstr("does not fit: 2 ranks are predicted to take"),
                    HasSubstr(" are left "), HasSubstr("What fits ("), HasSubstr("zero3")));
  // Each host has its own memory. (It is refused before it looks for them.)
  const CommandResult hosts = with("train", {"--out", "run", "-H", "a.invalid:1,b.invalid:1"});
  EXPECT_EQ(hosts.code, 2) << hosts.out;
  EXPECT_THAT(hosts.out, ContainsRegex("What fits \\(.* for 1 rank\\)"));
  const CommandResult event = with("plan", {"--json"});
  const Json plan = Json::parse(event.out.substr(0, event.out.find('\n')));
  EXPECT_EQ(plan.at("fits"), false);
  EXPECT_GT(plan.at("predicted_host_bytes"), plan.at("predicted_memory_bytes"));

  const CommandResult refused = with("train", {"--out", "run"});
  EXPECT_EQ(refused.code, 2) << refused.out;
  EXPECT_THAT(refused.err, AllOf(HasSubstr("does not fit: 2 ranks are predicted to take"),
                                 HasSubstr("memory.limit = \"none\"")));
  EXPECT_FALSE(std::filesystem::exists(folder_.file("run")));

  const CommandResult any = with("plan", {"--set", "memory.limit=none"});
  EXPECT_EQ(any.code, 0) << any.err;
  EXPECT_THAT(any.out, Not(HasSubstr("does not fit")));
}

// If the plan's numbers would overflow, the plan says so.
TEST_F(Memory, TheLargestModelsAreRefusedToo) {
  const CommandResult wide =
      trireme({"train", config_, "--set", "model.width=1000000", "--out", "run"});
  EXPECT_EQ(wide.code, 2) << wide.out;
  EXPECT_THAT(wide.err, HasSubstr("does not fit: 1 rank is predicted to take"));
  for (const char* command : {"plan", "train"}) {
    const CommandResult huge = trireme({command, config_, "--set", "model.width=1000000", "--set",
                                        "model.layers=10000", "--set", "model.experts=10000"});
    EXPECT_EQ(huge.code, 2) << huge.out;
    EXPECT_THAT(huge.err, HasSubstr("cannot be planned"));
  }
  EXPECT_FALSE(std::filesystem::exists(folder_.file("run")));
  EXPECT_FALSE(std::filesystem::exists(folder_.file("runs")));
  const CommandResult word = trireme({"plan", config_, "--set", "memory.limit=much"});
  EXPECT_EQ(word.code, 2);
  EXPECT_THAT(word.err, HasSubstr("memory.limit = \"much\" is not a number of bytes"));
}

TEST_F(Memory, AListHasAWordForEachBlock) {
  const CommandResult result =
      trireme({"plan", config_, "--set", "memory.recompute=full*3,none*2"});
  EXPECT_EQ(result.code, 2);
  EXPECT_THAT(result.err, HasSubstr("is for 5 blocks, and the model has 14"));
}

TEST_F(Memory, ActivationsInAFileTakeLessMemoryAndKeepTheBits) {
  const std::string place = folder_.path() + "/scratch";
  std::filesystem::create_directory(place);
  const std::vector<std::string> one_batch = {"--set", "batch.micro=32"};
  const auto with = [&](const std::string& name, std::vector<std::string> more) {
    more.insert(more.end(), one_batch.begin(), one_batch.end());
    return train(name, more);
  };
  const Run plain = with("plain", {});
  const Run offloaded = with("file", {"--set", "memory.offload_activations=" + place});
  EXPECT_EQ(offloaded.hash, plain.hash);
  EXPECT_THAT(offloaded.out, ContainsRegex("activations [0-9.]+ [kM]B .and [0-9.]+ MB in a file."));
  const double saved = plain.measured_bytes - offloaded.measured_bytes;
  // It saves about 100 MB, less what is still in memory on its way to the file on a busy machine.
  EXPECT_GT(saved, 60e6) << plain.measured_bytes << " " << offloaded.measured_bytes;
  EXPECT_TRUE(std::filesystem::is_empty(place));
}

TEST_F(Memory, ActivationsOfLanesInFilesKeepTheBits) {
  const std::string place = "memory.offload_activations=" + folder_.path();
  const Run plain = train("plain", {});
  const Run lanes = train("lanes", {"--set", place, "--set", "train.lanes=2"});
  EXPECT_EQ(lanes.hash, plain.hash);
  EXPECT_THAT(lanes.out, Not(HasSubstr("one lane instead of")));
}

}  // namespace
}  // namespace trireme::testing
