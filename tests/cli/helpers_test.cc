// Training helpers set by configuration: averaged weights, early stopping, skipped steps, the
// gradient noise scale. They give the same result on any layout and after a resume.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/cli/command.h"

namespace trireme::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using Json = nlohmann::json;

class Helpers : public ::testing::Test {
 protected:
  CommandResult trireme(std::vector<std::string> arguments) const {
    return trireme_command(std::move(arguments)).in(folder_.path()).run();
  }
  CommandResult train(const std::string& config, const std::string& out,
                      std::vector<std::string> more = {}) const {
    more.insert(more.begin(), {"train", config, "--out", out});
    const CommandResult result = trireme(more);
    EXPECT_EQ(result.code, 0) << result.out << result.err;
    return result;
  }
  std::string hash(const std::string& run) const { return hash_of_run(folder_.file(run)); }
  // The fields of all events of one kind, without the times.
  std::vector<Json> events(const std::string& run, const std::string& kind) const {
    std::istringstream text(read_file(folder_.file(run + "/events.jsonl")));
    std::vector<Json> all;
    for (std::string line; std::getline(text, line);) {
      Json event = Json::parse(line);
      if (event.at("event") != kind) continue;
      for (const char* time :
           {"step_seconds", "tokens_per_second", "communication_seconds", "input_seconds",
            "model_flops_utilization", "trigram_loss", "last_rank", "behind_seconds"})
        event.erase(time);
      all.push_back(std::move(event));
    }
    return all;
  }
  // A copy of `run` as it was when its checkpoint of `step` was the newest.
  void cut_back(const std::string& run, const std::string& copy, int step) const {
    fs::copy(folder_.file(run), folder_.file(copy), fs::copy_options::recursive);
    char name[32];
    std::snprintf(name, sizeof name, "step-%08d", step);
    for (const auto& entry : fs::directory_iterator(folder_.file(copy + "/checkpoint")))
      if (entry.is_directory() && entry.path().filename() > name) fs::remove_all(entry.path());
    folder_.write(copy + "/checkpoint/latest", std::string(name) + "\n");
  }

  // Trains again on other layouts (and with `further`), and resumes the run "one" at `step`;
  // weights and events must be those of "one".
  void expect_the_same_as_one(const std::string& config, int step,
                              const std::vector<std::string>& further) const {
    const auto steps = events("one", "step"), validations = events("one", "validation");
    const std::vector<std::vector<std::string>> layouts = {
        {"--ranks", "2"},
        {"--ranks", "3", "--set", "parallel.sync=zero3"},
        further,
        {"--set", "train.lanes=3"},
        {"--ranks", "4", "--transport", "sim"}};
    for (std::size_t i = 0; i < layouts.size(); ++i) {
      const std::string run = "layout-" + std::to_string(i);
      train(config, run, layouts[i]);
      EXPECT_EQ(hash(run), hash("one")) << run;
      EXPECT_EQ(events(run, "step"), steps) << run;
      EXPECT_EQ(events(run, "validation"), validations) << run;
    }
    for (const std::string ranks : {"1", "3"}) {
      const std::string run = "part-" + ranks;
      cut_back("one", run, step);
      const CommandResult resumed = trireme({"train", "--resume", run, "--ranks", ranks});
      EXPECT_EQ(resumed.code, 0) << resumed.out << resumed.err;
      EXPECT_EQ(hash(run), hash("one")) << run;
      EXPECT_EQ(events(run, "step"), steps) << run;
      EXPECT_EQ(events(run, "validation").back(), validations.back()) << run;
    }
  }

  Folder folder_;
};

TEST_F(Helpers, AreTheSameOnEveryLayoutAndAfterAResume) {
  const std::string config = tiny_config(
      folder_,
      "steps = 40\nvalidate_every = 10\nema = 0.8\nskip_outliers = 1.5\noutlier_window = 8\n"
      "noise_scale = true\n[checkpoint]\nevery = 20\n");
  const CommandResult said = train(config, "one");
  const auto steps = events("one", "step");
  ASSERT_EQ(steps.size(), 40u);
  const long skipped = steps.back().at("skipped_steps");
  EXPECT_GT(skipped, 0);
  EXPECT_LT(skipped, 20);
  EXPECT_GT(steps.back().at("noise_scale"), 0);
  EXPECT_THAT(said.out, AllOf(HasSubstr(" is left out: its "), HasSubstr("standard deviations"),
                              HasSubstr("; gradient noise scale "), HasSubstr(" tokens\n")));
  expect_the_same_as_one(
      config, 20, {"--ranks", "2", "--set", "parallel.sync=zero1", "--set", "comm.transport=tcp"});
}

// The scale moves up and down; events, bits and a resume agree on every layout.
TEST_F(Helpers, ALossScaleIsTheSameOnEveryLayoutAndAfterAResume) {
  const std::string config = tiny_config(
      folder_,
      "steps = 30\nvalidate_every = 0\nprecision = \"fp16\"\ninitial_loss_scale = 4294967296.0\n"
      "loss_scale_window = 4\n[checkpoint]\nevery = 15\n");
  const CommandResult said = train(config, "one");
  const auto steps = events("one", "step");
  ASSERT_EQ(steps.size(), 30u);
  EXPECT_EQ(steps.front().at("loss_scale"), 0x1p31);
  EXPECT_GT(steps.back().at("overflows"), 3);
  EXPECT_LT(steps.back().at("overflows"), 25);
  EXPECT_LT(steps.back().at("loss_scale"), 0x1p31);
  EXPECT_FALSE(steps.back().contains("skipped_steps")) << "it is no fault";
  EXPECT_THAT(said.out, AllOf(HasSubstr("step 1 is left out: on rank 0 the gradient of "),
                              HasSubstr("the loss scale falls from 4294967296 to 2147483648"),
                              HasSubstr(" · loss scale ")));
  expect_the_same_as_one(config, 15, {"--ranks", "2", "--set", "parallel.pipeline=2"});
}

TEST_F(Helpers, ValidationEvalAndGenerateSeeTheAverage) {
  const std::string lines = "steps = 20\nvalidate_every = 0\nlearning_rate = 0.01\n";
  const std::string plain = tiny_config(folder_, lines);
  train(plain, "plain");
  train(plain, "averaged", {"--set", "train.ema=0.9"});
  EXPECT_EQ(hash("averaged"), hash("plain")) << "the trained weights are the same";
  const double own = events("plain", "validation").back().at("loss");
  const double averaged = events("averaged", "validation").back().at("loss");
  EXPECT_NE(averaged, own);
  const CommandResult eval = trireme({"eval", "averaged", "--json"});
  EXPECT_EQ(Json::parse(eval.out).at("loss").get<double>(), averaged) << eval.err;
  const auto text = [&](const std::string& run) {
    return trireme({"generate", run, "--bytes", "60", "--temperature", "2"}).out;
  };
  EXPECT_NE(text("averaged"), text("plain"));
  // Another decay would be another average.
  const CommandResult other = trireme(
      {"train", "--resume", "averaged", "--set", "train.ema=0.5", "--set", "train.steps=22"});
  EXPECT_EQ(other.code, 12) << other.err;
  EXPECT_THAT(other.err, HasSubstr("train.ema = 0.9"));
}

TEST_F(Helpers, PatienceEndsATrainingThatLearnsNothing) {
  const std::string config =
      tiny_config(folder_,
                  "steps = 60\nvalidate_every = 3\npatience = 3\nlearning_rate = 0\n"
                  "final_learning_rate = 0\n[checkpoint]\nevery = 3\n");
  const std::string said = "stopped early after step 9: the validation loss has not fallen below";
  for (const char* ranks : {"1", "2"}) {
    const CommandResult result = train(config, std::string("run-") + ranks, {"--ranks", ranks});
    EXPECT_THAT(result.out, AllOf(HasSubstr(said), HasSubstr("of step 0\n"),
                                  HasSubstr("validation loss: "), Not(HasSubstr("step 12 "))));
    const auto ends = events(std::string("run-") + ranks, "early_stop");
    ASSERT_EQ(ends.size(), 1u);
    EXPECT_EQ(ends[0].at("step"), 9);
    EXPECT_EQ(ends[0].at("best_step"), 0);
  }
  // Interrupted after step 6, when two of the three validations of its patience have passed.
  cut_back("run-1", "part", 6);
  const CommandResult resumed = trireme({"train", "--resume", "part", "--ranks", "2"});
  EXPECT_EQ(resumed.code, 0) << resumed.err;
  EXPECT_THAT(resumed.out, HasSubstr(said));
  // At its end no step is left; with more patience there is.
  EXPECT_THAT(trireme({"train", "--resume", "part"}).out, HasSubstr(said));
  EXPECT_THAT(trireme({"train", "--resume", "part", "--set", "train.patience=5"}).out,
              HasSubstr("stopped early after step 15:"));
}

// The first start validates the first weights; each start makes one step and is stopped where a
// validation is due.
TEST_F(Helpers, AValidationThatAStopCutsOffCountsWhenTheRunIsResumed) {
  const std::string config =
      tiny_config(folder_,
                  "steps = 60\nvalidate_every = 1\npatience = 2\nlearning_rate = 0\n"
                  "final_learning_rate = 0\nmax_time = \"1ms\"\n");
  const CommandResult first = trireme({"train", config, "--out", "run"});
  ASSERT_EQ(first.code, 143) << first.out << first.err;
  const CommandResult second = trireme({"train", "--resume", "run"});
  ASSERT_EQ(second.code, 143) << second.out << second.err;
  const CommandResult third = trireme({"train", "--resume", "run"});
  EXPECT_EQ(third.code, 0) << third.out << third.err;
  EXPECT_THAT(third.out, HasSubstr("stopped early after step 2:"));
}

// The training diverges: non-finite steps are skipped on all ranks alike, and then end the run.
TEST_F(Helpers, StepsThatAreNoNumbersAreLeftOutUpToTheBudget) {
  const std::string config = tiny_config(
      folder_,
      "steps = 60\nvalidate_every = 0\nlearning_rate = 1e3\nclip = 0\nskip_not_finite = 3\n"
      "[optimizer]\nname = \"sgd\"\n");
  for (const char* ranks : {"1", "2"}) {
    const std::string run = std::string("run-") + ranks;
    const CommandResult result = trireme({"train", config, "--out", run, "--ranks", ranks});
    EXPECT_EQ(result.code, 21) << result.out << result.err;
    EXPECT_THAT(result.err, HasSubstr("3 steps were left out before for such numbers, and "
                                      "train.skip_not_finite is 3"));
    EXPECT_THAT(result.out, HasSubstr(" is left out: rank "));
    const auto steps = events(run, "step");
    ASSERT_GT(steps.size(), 3u);
    EXPECT_EQ(steps.back().at("skipped_steps"), 3);
    EXPECT_TRUE(steps.back().at("loss").is_null());
    EXPECT_FALSE(steps.front().contains("skipped_steps"));
  }
  EXPECT_EQ(events("run-2", "step"), events("run-1", "step"));
}

TEST_F(Helpers, KeysThatDoNotFitAreRefused) {
  const std::string config = tiny_config(folder_, "steps = 5\n");
  const auto refused = [&](const std::vector<std::string>& settings) {
    std::vector<std::string> arguments = {"train", config};
    for (const std::string& one : settings) arguments.insert(arguments.end(), {"--set", one});
    const CommandResult result = trireme(arguments);
    EXPECT_EQ(result.code, 2) << result.out;
    return result.err;
  };
  EXPECT_THAT(refused({"train.patience=2", "train.validate_every=0"}),
              HasSubstr("train.validate_every"));
  EXPECT_THAT(refused({"train.noise_scale=true", "batch.global=2"}), HasSubstr("batch.micro"));
  EXPECT_THAT(refused({"train.ema=1"}), HasSubstr("train.ema"));
  EXPECT_THAT(refused({"train.outlier_window=2"}), HasSubstr("at least 4"));
}

}  // namespace
}  // namespace trireme::testing
