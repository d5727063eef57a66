#include "trireme/cli/bench/compare.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "trireme/base/error.h"
#include "trireme/cli/checkpoints.h"

namespace trireme::cli {
namespace {

namespace fs = std::filesystem;

class Compare : public ::testing::Test {
 protected:
  void SetUp() override {
    root_ = fs::temp_directory_path() / ("trireme-compare-" + std::to_string(::getpid()));
    fs::remove_all(root_);
  }
  void TearDown() override { fs::remove_all(root_); }
  std::string write(const std::string& name, const std::string& config, const std::string& events) {
    fs::create_directories(root_ / name);
    std::ofstream(root_ / name / "config.toml") << config;
    std::ofstream(root_ / name / "events.jsonl") << events;
    return (root_ / name).string();
  }
  fs::path root_;
};

const char* kEvents =
    "{\"event\":\"plan\",\"ranks\":2}\n"
    "{\"event\":\"validation\",\"step\":0,\"loss\":5.5}\n"
    "{\"event\":\"step\",\"step\":1,\"loss\":5.0,\"step_seconds\":0.9,\"tokens_per_second\":10}\n"
    "{\"event\":\"step\",\"step\":2,\"loss\":4.0,\"step_seconds\":0.5,\"tokens_per_second\":20}\n"
    "{\"event\":\"step\",\"step\":3,\"loss\":3.0,\"step_seconds\":0.4,\"tokens_per_second\":25}\n"
    "{\"event\":\"step\",\"st";

TEST_F(Compare, ReadsCurvesAndSpeed) {
  const ComparedRun run =
      read_run(write("a", "timeout = 30.0\n[train]\nsteps = 3\n", kEvents) + "/");
  EXPECT_EQ(run.name, "a");
  EXPECT_EQ(run.training.size(), 3u);
  EXPECT_EQ(run.validation.size(), 1u);
  EXPECT_EQ(run.training.back(), std::pair(3.0, 3.0));
  EXPECT_EQ(median(run.per_second), 20);
  EXPECT_EQ(run.keys.at("train.steps"), "3");
}

TEST_F(Compare, LeavesOutLinesOfOtherPrograms) {
  const ComparedRun run = read_run(
      write("a", "",
            std::string("{\"event\":7,\"loss\":1}\n"
                        "{\"event\":\"step\",\"step\":\"x\",\"loss\":1}\n"
                        "{\"event\":\"step\",\"step\":1,\"loss\":1,\"step_seconds\":null}\n") +
                kEvents));
  EXPECT_EQ(run.training.size(), 3u);
  EXPECT_EQ(run.step_seconds.size(), 3u);
}

// The folder of a Log: no configuration, and samples instead of tokens.
TEST_F(Compare, ReadsTheLogOfALoopOfOnesOwn) {
  const std::string folder = write("own", "",
                                   "{\"event\":\"step\",\"step\":1,\"loss\":5.0,"
                                   "\"step_seconds\":0.9,\"samples_per_second\":10}\n");
  fs::remove(fs::path(folder) / "config.toml");
  const ComparedRun run = read_run(folder);
  EXPECT_TRUE(run.keys.empty());
  EXPECT_EQ(median(run.per_second), 10);
  EXPECT_EQ(run.items, "samples");
}

TEST_F(Compare, NamesTheRankThatTheOthersWaitedForLongest) {
  std::string events;
  for (int step = 1; step <= 10; ++step)
    events += "{\"event\":\"step\",\"step\":" + std::to_string(step) +
              ",\"loss\":5.0,\"step_seconds\":0.1,\"last_rank\":" +
              (step <= 7 ? "0,\"behind_seconds\":0.001}\n" : "2,\"behind_seconds\":0.02}\n");
  EXPECT_EQ(straggler_text(read_run(write("late", "", events))),
            "rank 2, in 3 of 10 steps, by 20 ms");
  EXPECT_EQ(straggler_text(read_run(write("alone", "", kEvents))), "");
}

TEST_F(Compare, NamesTheKeysThatDiffer) {
  const std::vector<ComparedRun> runs = {
      read_run(
          write("a", "[train]\nsteps = 3 # --set\nseed = 1\n[model]\nname = \"gpt\"\n", kEvents)),
      read_run(write("b", "[train]\nsteps = 3\nseed = 2\nclip = 0.5\n[model]\nname = \"gpt\"\n",
                     kEvents))};
  const auto keys = differing_keys(runs);
  ASSERT_EQ(keys.size(), 2u);
  EXPECT_EQ(keys.at("train.seed"), (std::vector<std::string>{"1", "2"}));
  EXPECT_EQ(keys.at("train.clip"), (std::vector<std::string>{"-", "0.5"}));
  const std::string svg = overlaid(runs);
  for (const char* word : {"<svg", ">a<", ">b, validation<", "2 runs"})
    EXPECT_NE(svg.find(word), std::string::npos) << word;
}

TEST_F(Compare, AxisHasTheUnitThatTheRunsAgreeOn) {
  const auto events = [](const char* unit) {
    std::string text = "{\"event\":\"plan\",\"loss_unit\":\"";
    text += unit;
    text += "\"}\n";
    text += kEvents;
    return text;
  };
  const ComparedRun bytes = read_run(write("a", "x = 1\n", events("nats a byte"))),
                    images = read_run(write("b", "x = 1\n", events("nats an image"))),
                    silent = read_run(write("c", "x = 1\n", kEvents));
  EXPECT_NE(overlaid({silent, bytes}).find(">loss (nats a byte)<"), std::string::npos);
  EXPECT_NE(overlaid({bytes, images}).find(">loss<"), std::string::npos);
  EXPECT_NE(overlaid({silent}).find(">loss<"), std::string::npos);
}

// A worker on its own may be told of one step twice; a validation is after the last one of its number.
TEST_F(Compare, DrawsCurvesOverTime) {
  const std::string twice =
      "{\"event\":\"step\",\"step\":3,\"loss\":2.0,\"step_seconds\":98.2,\"tokens_per_second\":25}"
      "\n"
      "{\"event\":\"validation\",\"step\":3,\"loss\":2.5}\n";
  std::string events = kEvents;
  events.resize(events.rfind('\n') + 1);
  const ComparedRun run = read_run(write("a", "x = 1\n", events + twice));
  const std::string steps = overlaid({run}), time = overlaid({run}, true);
  EXPECT_NE(steps.find(">step<"), std::string::npos);
  EXPECT_NE(time.find(">seconds, of steps alone<"), std::string::npos);
  EXPECT_EQ(steps.find(">100<"), std::string::npos);
  EXPECT_NE(time.find(">100<"), std::string::npos) << time;  // 0.9 + 0.5 + 0.4 + 98.2
}

TEST_F(Compare, WritesNumbersForPeople) {
  const ComparedRun run = read_run(write("a",
                                         "[train]\nlearning_rate = 0.003\nsteps = 3\n"
                                         "clip = 1.0\nname = \"x\"\n",
                                         kEvents));
  EXPECT_EQ(run.keys.at("train.learning_rate"), "0.003");
  EXPECT_EQ(run.keys.at("train.steps"), "3");
  EXPECT_EQ(run.keys.at("train.clip"), "1");
}

TEST_F(Compare, DrawsTheStalenessOfRunsThatHaveIt) {
  const auto with = [](const std::string& more) { return std::string(kEvents) + "\n" + more; };
  const std::string early =
      "{\"event\":\"servers\",\"step\":2,\"dropped\":0,\"staleness\":[0],"
      "\"staleness_pushes\":[4]}\n";
  const std::string late =
      "{\"event\":\"servers\",\"step\":3,\"dropped\":2,\"staleness\":[0,1,5],"
      "\"staleness_pushes\":[4,2,2]}\n";
  const ComparedRun served = read_run(write("a", "x = 1\n", with(early + late))),
                    plain = read_run(write("b", "x = 1\n", kEvents));
  EXPECT_EQ(served.staleness, (std::map<std::int64_t, std::int64_t>{{0, 4}, {1, 2}, {5, 2}}));
  EXPECT_EQ(served.dropped_gradients, 2);
  EXPECT_EQ(mean_staleness(served), 1.5);
  EXPECT_EQ(mean_staleness(plain), std::nullopt);
  EXPECT_EQ(staleness_plot({plain}), "");
  const std::string svg = staleness_plot({plain, served});
  for (const char* word : {"<svg", ">a<", ">4-7<"})
    EXPECT_NE(svg.find(word), std::string::npos) << word;
  EXPECT_EQ(svg.find(">b<"), std::string::npos);
}

// A Checkpointer's folder: only steps and weights can be compared.
TEST_F(Compare, ReadsTheCheckpointsOfALoopOfOnesOwn) {
  for (const char* step : {"step-00000002", "step-00000010"}) {
    fs::create_directories(root_ / "own" / step);
    std::ofstream(root_ / "own" / step / "manifest.json") << "{}";
  }
  fs::create_directories(root_ / "own/step-00000009");  // damaged: who reads it says so
  const ComparedRun run = read_run((root_ / "own").string());
  EXPECT_EQ(run.steps, 10);
  EXPECT_TRUE(run.training.empty());
  EXPECT_EQ(run.checkpoint, (root_ / "own/step-00000010").string());
  EXPECT_EQ(read_run((root_ / "own/step-00000002/").string()).steps, 2);
  EXPECT_EQ(overlaid({run}).find(">own<"), std::string::npos);
}

// The newest checkpoint has lost its manifest: nothing falls back to an older one.
TEST_F(Compare, NamesTheDamageOfTheNewestCheckpoint) {
  fs::create_directories(root_ / "own/step-00000010");
  std::ofstream(root_ / "own/step-00000010/manifest.json") << "{}";
  fs::create_directories(root_ / "own/step-00000011");
  const ComparedRun run = read_run((root_ / "own").string());
  EXPECT_EQ(run.checkpoint, (root_ / "own/step-00000011").string());
  EXPECT_THROW(model_weights(run.checkpoint), CheckpointError);
}

// A run's checkpoint has the run's curves up to its step, and its configuration.
TEST_F(Compare, FindsTheRunOfACheckpoint) {
  const std::string folder = write("run", "[train]\nsteps = 3\n", kEvents);
  const fs::path step = fs::path(folder) / "checkpoint/step-00000002";
  fs::create_directories(step);
  std::ofstream(step / "manifest.json") << "{}";
  EXPECT_EQ(read_run(folder).steps, 3);
  EXPECT_EQ(read_run(folder + "/checkpoint").training.size(), 3u);
  const ComparedRun cut = read_run(step.string());
  EXPECT_EQ(cut.steps, 2);
  EXPECT_EQ(cut.training.size(), 2u);
  EXPECT_EQ(cut.keys.at("train.steps"), "3");
}

// The curves are in the run's folder; its bucket may be gone.
TEST_F(Compare, AsksNoBucketForRunsThatHaveCurves) {
  const ComparedRun run =
      read_run(write("run", "[checkpoint]\npath = \"nowhere://bucket/run\"\n", kEvents));
  EXPECT_EQ(run.steps, 3);
  EXPECT_EQ(run.keys.at("checkpoint.path"), "'nowhere://bucket/run'");
}

TEST_F(Compare, RefusesWhatIsNoRun) {
  EXPECT_THROW(read_run((root_ / "none").string()), ConfigError);
  EXPECT_THROW(read_run(write("c", "x = 1\n", "")), ConfigError);
  EXPECT_THROW(read_run(write("d", "x = \n", kEvents)), ConfigError);
  EXPECT_EQ(median({}), std::nullopt);
}

}  // namespace
}  // namespace trireme::cli
