// The time of a step as `plan` predicts it from the calibration in the user's cache folder.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/cli/command.h"

namespace trireme::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
constexpr const char* kCalibrating = "calibrating this machine (about 1 s)";

class Predicted : public ::testing::Test {
 protected:
  CommandResult plan(const std::string& cache, std::vector<std::string> more = {}) const {
    std::vector<std::string> words = {"plan", config_};
    words.insert(words.end(), more.begin(), more.end());
    return trireme_command(words).in(folder_.path()).with("XDG_CACHE_HOME", cache).run();
  }
  std::string calibration() const {
    return fs::directory_iterator(folder_.file("cache/trireme"))->path();
  }

  const Folder folder_;
  const std::string config_ = tiny_config(folder_, "steps = 1000\n");
};

TEST_F(Predicted, TimeIsThatOfTheCalibration) {
  const CommandResult first = plan(folder_.file("cache"));
  ASSERT_EQ(first.code, 0) << first.err;
  EXPECT_THAT(first.err, HasSubstr(kCalibrating));
  EXPECT_THAT(first.out, HasSubstr("a step, predicted: forward and backward "));
  // Put another calibration of this machine in its place, also if it was too busy to believe its own.
  std::ifstream measured(calibration());
  std::string machine, text, line;
  std::getline(measured, machine);
  const std::string disturbed = "disturbed: ";
  if (machine.starts_with(disturbed)) machine.erase(0, disturbed.size());
  while (std::getline(measured, line)) {
    std::string kernel = line.substr(line.find(' '));
    text += (kernel.starts_with(" memory") ? "12e-6" : "1e-3") + kernel + "\n";
  }
  std::ofstream(calibration()) << machine + "\n" + text;
  // Four micro-batches of 21 calls; the update moves 80 bytes a parameter.
  const CommandResult second = plan(folder_.file("cache"));
  EXPECT_THAT(second.err, Not(HasSubstr(kCalibrating)));
  EXPECT_THAT(
      second.out,
      HasSubstr("  time     84.1 ms a step, predicted: forward and backward 84 ms + gradients "
                "and update 80 us; 1 min 24 s in all, without validation\n"));
  EXPECT_THAT(second.out, HasSubstr("(kernels as measured on this machine, in " + calibration()));
  // A file that is not whole is not believed.
  std::ofstream(calibration()) << machine + "\n" + text + "0.001\n";
  EXPECT_THAT(plan(folder_.file("cache")).err, HasSubstr(kCalibrating));
  // The calibration that replaced it is believed, unless other programs disturbed that one, too.
  std::ifstream replaced(calibration());
  std::getline(replaced, line);
  EXPECT_EQ(plan(folder_.file("cache")).err.find(kCalibrating) != std::string::npos,
            line.starts_with(disturbed));
}

// As many sums, and of as many bytes, as a traced run makes for each micro-batch.
TEST_F(Predicted, SumsOfTensorParallelLayersAreThoseOfARun) {
  const auto layers = [&](const std::string& more) {
    return plan(folder_.file("cache"),
                {"--ranks", "2", "--device", "a100", "--set", "parallel.tensor=2", "--set", more})
        .out;
  };
  EXPECT_THAT(layers("train.precision=fp32"), HasSubstr("10 a micro-batch, of 4.1 kB\n"));
  EXPECT_THAT(layers("train.precision=bf16"), HasSubstr("10 a micro-batch, of 2.0 kB\n"));
  EXPECT_THAT(layers("memory.recompute=selective"), HasSubstr("10 a micro-batch, of 4.1 kB\n"));
  EXPECT_THAT(layers("memory.recompute=full"), HasSubstr("15 a micro-batch, of 4.1 kB\n"));
}

TEST_F(Predicted, TimeNeedsNoCache) {
  const CommandResult result = plan("/proc/none");
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("a step, predicted"));
}

TEST_F(Predicted, TimeIsNotThatOfASimulation) {
  const CommandResult result = plan(folder_.file("cache"), {"--transport", "sim"});
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.out, Not(HasSubstr("  time ")));
  EXPECT_THAT(result.err, Not(HasSubstr(kCalibrating)));
}

TEST_F(Predicted, TimeStandsBesideTheMeasuredOne) {
  const CommandResult result =
      trireme_command({"train", config_, "--set", "train.steps=6"}).in(folder_.path()).run();
  ASSERT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.out, ::testing::ContainsRegex("\nstep     [0-9.]+ [um]s +[0-9.]+ [um]s .the "
                                                   "median.\n"));
}

}  // namespace
}  // namespace trireme::testing
