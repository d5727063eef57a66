// train --fit: chooses a layout that fits into memory and keeps the bits of the configuration.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <fstream>
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

class Fit : public ::testing::Test {
 protected:
  // 16 layers of width 256 have 50 MB of weights: much beside the two blocks that zero3 gathers.
  Fit()
      : config_(folder_.write(
            "wide.toml",
            "[model]\nname = \"gpt\"\nlayers = 16\nheads = 4\nwidth = 256\nblock = 16\n"
            "[data]\npath = \"" +
                text() +
                "\"\n[batch]\nglobal = 8\nmicro = 2\n"
                "[train]\nsteps = 2\nwarmup = 0\nvalidate_sequences = 8\n"
                "validate_every = 0\nsample_bytes = 0\n"
                "[comm]\nbucket_bytes = 1048576\n")) {}

  std::string text() const {
    std::string words;
    for (int i = 0; i < 2000; ++i) words += "ship " + std::to_string(i % 97) + " rows on\n";
    return folder_.write("text.txt", words);
  }
  CommandResult trireme(std::vector<std::string> arguments) const {
    return trireme_command(std::move(arguments))
        .in(folder_.path())
        .with("XDG_CACHE_HOME", folder_.file("cache"))
        .run(150);
  }
  std::string hash(const std::string& run) const { return hash_of_run(folder_.file(run)); }
  static std::vector<Json> events(const std::string& out, const std::string& kind) {
    std::istringstream text(out);
    std::vector<Json> all;
    for (std::string line; std::getline(text, line);)
      if (Json event = Json::parse(line); event.at("event") == kind)
        all.push_back(std::move(event));
    return all;
  }

  Folder folder_;
  const std::string config_;
};

std::string megabytes(std::int64_t bytes) { return "memory.limit=" + std::to_string(bytes); }

TEST_F(Fit, LeavesNothingBehindWhenItIsStopped) {
  const std::string temporary = folder_.path() + "/tmp";
  std::filesystem::create_directory(temporary);
  Command::Running running =
      trireme_command({"train", config_, "--ranks", "2", "--out", "run", "--fit"})
          .in(folder_.path())
          .with("TMPDIR", temporary)
          .start();
  ASSERT_TRUE(running.wait_for("trying")) << running.output();
  running.send(SIGINT);
  const CommandResult result = running.wait(30);
  EXPECT_EQ(result.code, 130) << result.out << result.err;
  EXPECT_THAT(result.err, HasSubstr("stopped before all runs had ended"));
  EXPECT_EQ(result.left_behind, 0);
  EXPECT_TRUE(std::filesystem::is_empty(temporary));
}

TEST_F(Fit, GivesItsTrialsTheEnvironment) {
  std::string words = read_file(config_);
  words.replace(words.find("text.txt"), 8, "gone.txt");
  const std::string config = folder_.write("gone.toml", words);
  const CommandResult result = trireme_command({"train", config, "--ranks", "2", "--out", "run",
                                                "--fit", "--set", "parallel.sync=plain"})
                                   .in(folder_.path())
                                   .with("TRIREME_DATA_PATH", folder_.file("text.txt"))
                                   .run(150);
  EXPECT_EQ(result.code, 0) << result.out << result.err;
  EXPECT_THAT(result.out + result.err,
              AllOf(HasSubstr("trying"), Not(HasSubstr("trial ended with"))));
}

TEST_F(Fit, TakesZero3WhereNothingElseFitsAndKeepsTheBits) {
  // 32 layers, so that zero3 takes some 45 MB less than zero2.
  const auto with = [&](std::vector<std::string> first, std::vector<std::string> more) {
    for (const char* word :
         {"--ranks", "2", "--set", "model.layers=32", "--set", "memory.recompute=none"})
      first.push_back(word);
    first.insert(first.end(), more.begin(), more.end());
    return trireme(first);
  };
  const auto predicted = [&](const std::string& sync) -> std::int64_t {
    const CommandResult plan =
        with({"plan", config_, "--json"}, {"--set", "parallel.sync=" + sync});
    EXPECT_EQ(plan.code, 0) << plan.err;
    return Json::parse(plan.out).at("predicted_memory_bytes");
  };
  const std::int64_t sharded = predicted("zero3"), other = predicted("zero2");
  ASSERT_GT(other, sharded + 40'000'000);
  const std::string limit = megabytes(other - 2'000'000);
  const CommandResult plain = with({"train", config_, "--out", "plain"}, {});
  ASSERT_EQ(plain.code, 0) << plain.err;

  const CommandResult refused = with({"train", config_, "--out", "none"}, {"--set", limit});
  EXPECT_EQ(refused.code, 2) << refused.out;
  EXPECT_THAT(refused.err, AllOf(HasSubstr(" more than memory.limit ("), HasSubstr("--fit")));
  EXPECT_FALSE(std::filesystem::exists(folder_.file("none")));

  const CommandResult fitted =
      with({"train", config_, "--out", "fitted", "--fit", "--json"}, {"--set", limit});
  ASSERT_EQ(fitted.code, 0) << fitted.out << fitted.err;
  std::string chosen;
  for (const Json& one : events(fitted.out, "fit")) {
    EXPECT_EQ(one.at("micro"), 2);
    EXPECT_EQ(one.at("fits"), one.at("sync") == "zero3") << one;
    if (!one.at("chosen")) continue;
    chosen += one.at("sync").get<std::string>();
    EXPECT_GT(one.at("step_seconds"), 0);
    EXPECT_NEAR(one.at("measured_memory_bytes").get<double>(), static_cast<double>(sharded),
                0.1 * static_cast<double>(sharded));
  }
  EXPECT_EQ(chosen, "zero3");
  EXPECT_THAT(fitted.err, AllOf(HasSubstr("What fits (memory.limit):"), HasSubstr("yes, chosen"),
                                HasSubstr("ZeRO-3 (all state over 2 ranks")));
  EXPECT_THAT(read_file(folder_.file("fitted/config.toml")),
              ContainsRegex("sync = \"zero3\" *# --fit"));
  EXPECT_EQ(hash("fitted"), hash("plain"));
}

// One rank has no other layout: only recomputation saves memory.
TEST_F(Fit, ComputesActivationsAgainWhereNothingElseFitsAndKeepsTheBits) {
  const std::vector<std::string> wide = {"--set", "batch.micro=8", "--set",   "model.block=64",
                                         "--set", "train.lanes=1", "--ranks", "1"};
  const auto with = [&](std::vector<std::string> first, std::vector<std::string> more = {}) {
    first.insert(first.end(), wide.begin(), wide.end());
    first.insert(first.end(), more.begin(), more.end());
    return trireme(first);
  };
  const auto bytes = [&](const std::string& policy) {
    const CommandResult plan =
        with({"plan", config_, "--json"}, {"--set", "memory.recompute=" + policy});
    return Json::parse(plan.out).at("predicted_memory_bytes").get<std::int64_t>();
  };
  const std::int64_t full = bytes("full"), other = bytes("every-2");
  ASSERT_GT(other, full + 70'000'000);
  ASSERT_GT(bytes("none"), other);
  // The prediction decides here; full recomputation may take a tenth more than predicted.
  const std::string limit = megabytes(other - 20'000'000);
  ASSERT_EQ(with({"train", config_, "--out", "plain"}).code, 0);
  believe_calibrations(folder_.file("cache"));
  const CommandResult fitted =
      with({"train", config_, "--out", "fitted", "--fit", "--json"}, {"--set", limit});
  ASSERT_EQ(fitted.code, 0) << fitted.out << fitted.err;
  std::vector<std::string> considered;
  for (const Json& one : events(fitted.out, "fit")) {
    const std::string recompute = one.at("recompute");
    considered.push_back(recompute);
    EXPECT_GT(one.at("predicted_step_seconds"), 0) << one;
    EXPECT_EQ(one.at("micro"), 8);
    EXPECT_EQ(one.at("chosen"), recompute == "full") << one;
    EXPECT_EQ(one.contains("step_seconds"), recompute == "full") << one;
  }
  EXPECT_THAT(considered, ::testing::ElementsAre("none", "selective", "every-2", "full"));
  EXPECT_THAT(fitted.err, AllOf(HasSubstr("(recompute: full)"),
                                ContainsRegex("kernels as measured on this machine")));
  EXPECT_THAT(read_file(folder_.file("fitted/config.toml")),
              ContainsRegex("recompute = \"full\" *# --fit"));
  EXPECT_EQ(hash("fitted"), hash("plain"));
  const CommandResult insisted =
      with({"plan", config_, "--fit"}, {"--set", limit, "--set", "memory.recompute=every-2"});
  EXPECT_THAT(insisted.out, Not(HasSubstr(" full ")));
}

TEST_F(Fit, TakesTheFastestOfThoseThatFitAndSaysWhatItTried) {
  const CommandResult result =
      trireme({"train", config_, "--ranks", "2", "--out", "run", "--fit", "--json"});
  ASSERT_EQ(result.code, 0) << result.out << result.err;
  EXPECT_THAT(result.err, AllOf(HasSubstr(" are left on this machine, for 2 ranks"),
                                HasSubstr("trying plain with"), HasSubstr("trying zero3 with")));
  double fastest = 1e9, taken = 0;
  for (const Json& one : events(result.out, "fit")) {
    if (!one.contains("step_seconds")) continue;
    const double seconds = one.at("step_seconds");
    fastest = std::min(fastest, seconds);
    if (one.at("chosen")) taken = seconds;
  }
  EXPECT_GT(taken, 0);
  EXPECT_LE(taken, 1.03 * fastest);
}

TEST_F(Fit, IsNotAdvisedWhereItWouldFindNothing) {
  const CommandResult refused =
      trireme({"train", config_, "--ranks", "2", "--set", megabytes(1'000'000)});
  EXPECT_EQ(refused.code, 2) << refused.out;
  EXPECT_THAT(refused.err, AllOf(HasSubstr("None of these layouts fits: use more --ranks"),
                                 Not(HasSubstr("--fit"))));
}

TEST_F(Fit, RefusesALimitThatNothingFits) {
  for (const char* command : {"train", "plan"}) {
    const CommandResult result =
        trireme({command, config_, "--ranks", "2", "--set", megabytes(1'000'000), "--fit"});
    EXPECT_EQ(result.code, 2) << result.out << result.err;
    EXPECT_THAT(result.out, AllOf(HasSubstr("What fits (memory.limit):"), HasSubstr("zero3"),
                                  ContainsRegex("fits into\n.* 1.0 MB a rank"),
                                  Not(HasSubstr("yes")), Not(HasSubstr("trying"))));
    EXPECT_THAT(result.err, HasSubstr("no layout fits into 1000000 bytes per rank"));
  }
  EXPECT_FALSE(std::filesystem::exists(folder_.file("runs")));
}

// For a new job only, because the micro-batch size decides bits.
TEST_F(Fit, ASmallerMicroBatchIsForANewJobAlone) {
  const std::vector<std::string> wide = {
      "--set", "batch.global=64", "--set", "batch.micro=32",        "--set",   "model.block=64",
      "--set", "model.layers=4",  "--set", "memory.recompute=none", "--ranks", "1"};
  const auto with = [&](std::vector<std::string> first, std::vector<std::string> more) {
    first.insert(first.end(), wide.begin(), wide.end());
    first.insert(first.end(), more.begin(), more.end());
    return trireme(first);
  };
  const auto bytes = [&](const char* micro) {
    const CommandResult plan =
        with({"plan", config_, "--json"}, {"--set", std::string("batch.micro=") + micro});
    return Json::parse(plan.out).at("predicted_memory_bytes").get<std::int64_t>();
  };
  const std::string limit = megabytes((bytes("32") + bytes("8")) / 2);
  const CommandResult planned = with({"plan", config_, "--fit"}, {"--set", limit});
  ASSERT_EQ(planned.code, 0) << planned.err;
  EXPECT_THAT(planned.out, HasSubstr("instead of 32, so that it fits: it decides bits"));

  const CommandResult started =
      with({"train", config_, "--out", "run"}, {"--set", "train.steps=1", "--fit"});
  ASSERT_EQ(started.code, 0) << started.err;
  EXPECT_THAT(started.out, Not(HasSubstr("instead of 32")));
  const CommandResult resumed =
      trireme({"train", "--resume", "run", "--fit", "--set", limit, "--set", "train.steps=2",
               "--set", "memory.recompute=none"});
  EXPECT_EQ(resumed.code, 2) << resumed.out;
  EXPECT_THAT(resumed.err, HasSubstr("a resumed run keeps batch.micro"));
  const CommandResult roomy = trireme({"train", "--resume", "run", "--fit", "--ranks", "2", "--set",
                                       "train.steps=2", "--set", "memory.recompute=none"});
  EXPECT_EQ(roomy.code, 0) << roomy.out << roomy.err;
  EXPECT_THAT(read_file(folder_.file("run/config.toml")), HasSubstr("micro = 32"));
}

TEST_F(Fit, RanksOfOneHostShareItsMemory) {
  const CommandResult two = trireme({"plan", config_, "--ranks", "2", "--fit"});
  EXPECT_EQ(two.code, 0) << two.err;
  EXPECT_THAT(two.out, HasSubstr(", for 2 ranks):"));
}

TEST_F(Fit, WhatSomebodyInsistsOnStays) {
  const CommandResult result =
      trireme({"plan", config_, "--ranks", "2", "--fit", "--set", "parallel.sync=zero1"});
  ASSERT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.out, AllOf(HasSubstr("  zero1 "), Not(HasSubstr("  zero3 ")),
                                HasSubstr("ZeRO-1 (optimizer state over 2 ranks)")));
  const CommandResult local =
      trireme({"plan", config_, "--ranks", "2", "--fit", "--set", "parallel.sync=local_sgd"});
  EXPECT_EQ(local.code, 2);
  EXPECT_THAT(local.err, HasSubstr("is none of them"));
}

// 1.5 billion parameters with their sums and moments do not fit into 16 GB, and a quarter of a device
// holds less than half of one.
TEST_F(Fit, ChoosesForADevicesMemory) {
  const auto plan = [&](std::vector<std::string> more) {
    std::vector<std::string> words = {"plan",  config_,           "--ranks", "8",
                                      "--set", "model.layers=48", "--set",   "model.width=1600",
                                      "--set", "model.heads=25",  "--set",   "memory.limit=none",
                                      "--set", "batch.global=8",  "--set",   "batch.micro=1"};
    words.insert(words.end(), more.begin(), more.end());
    return trireme(words);
  };
  const CommandResult small = plan({"--device", "t4"});
  ASSERT_EQ(small.code, 0) << small.err;
  EXPECT_THAT(small.out, AllOf(HasSubstr("does not fit: the tensors of a rank"),
                               HasSubstr("What fits (NVIDIA T4 has 16.0 GB)"), HasSubstr("zero3")));
  const CommandResult chosen = plan({"--device", "t4", "--fit"});
  ASSERT_EQ(chosen.code, 0) << chosen.err;
  EXPECT_THAT(chosen.out, AllOf(HasSubstr("NVIDIA T4"), Not(HasSubstr("plain data parallel:")),
                                Not(HasSubstr("does not fit:"))));
  const CommandResult large = plan({"--device", "h200", "--fit", "--json"});
  ASSERT_EQ(large.code, 0) << large.err;
  const Json planned = events(large.out, "plan").at(0);
  EXPECT_EQ(planned.at("fits"), true);
  EXPECT_EQ(planned.at("device"), "cuda");
  EXPECT_EQ(planned.at("device_memory_bytes"), 141'000'000'000);
  const CommandResult shared =
      plan({"--device", "h200", "--set", "train.ranks_per_device=8", "--fit"});
  ASSERT_EQ(shared.code, 0) << shared.err;
  EXPECT_THAT(shared.out, AllOf(HasSubstr("NVIDIA H200 SXM has 141 GB, for 8 ranks"),
                                HasSubstr("each for 8 ranks of 17.6 GB"),
                                Not(HasSubstr("plain data parallel:"))));
}

TEST_F(Fit, LeavesServersToTheConfiguration) {
  const CommandResult result = trireme({"train", config_, "--servers", "1", "--fit"});
  EXPECT_EQ(result.code, 2) << result.out;
  EXPECT_THAT(result.err, HasSubstr("parallel.sync = \"server\" is none of them"));
}

TEST_F(Fit, GoesOnWithARunWhoseCheckpointsAreElsewhere) {
  const std::string tiny = tiny_config(folder_, "steps = 2\n");
  ASSERT_EQ(trireme({"train", tiny, "--out", "run", "--set", "checkpoint.path=saved"}).code, 0);
  const CommandResult more =
      trireme({"train", "--resume", "run", "--fit", "--ranks", "2", "--set", "train.steps=4"});
  EXPECT_EQ(more.code, 0) << more.out << more.err;
}

}  // namespace
}  // namespace trireme::testing
