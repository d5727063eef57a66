// The shipped configurations, on two ranks: the predicted time of a step against the median of those
// that were run (label soak: it needs a machine that does nothing else).
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <vector>

#include "tests/cli/command.h"

namespace trireme::testing {
namespace {

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values.at(values.size() / 2);
}

// Predicted over measured, with a new calibration.
double ratio(const std::string& config, const std::string& data, int steps) {
  Folder folder;
  const CommandResult run =
      trireme_command({"train", TRIREME_SOURCE_DIR "/configs/" + config, "--ranks", "2", "--data",
                       data, "--out", folder.file("run"), "--json", "--set",
                       "train.steps=" + std::to_string(steps), "--set", "train.validate_every=0",
                       "--set", "train.validate_sequences=8"})
          .in(folder.path())
          .with("XDG_CACHE_HOME", folder.file("cache"))
          .run(600);
  EXPECT_EQ(run.code, 0) << run.err;
  double predicted = 0;
  std::vector<double> measured;
  std::istringstream lines(run.out);
  for (std::string line; std::getline(lines, line);) {
    const auto event = nlohmann::json::parse(line);
    predicted = event.value("predicted_step_seconds", predicted);
    if (event.at("event") == "step") measured.push_back(event.at("step_seconds"));
  }
  std::printf("%s: %.4g s predicted, %.4g s measured\n", config.c_str(), predicted,
              median(measured));
  return predicted / median(measured);
}

// The median of three, since a machine is not always equally fast.
void expect_predicted(const std::string& config, const std::string& data, int steps) {
  std::vector<double> ratios;
  for (int round = 0; round < 3; ++round) ratios.push_back(ratio(config, data, steps));
  EXPECT_NEAR(median(ratios), 1, 0.15) << config;
}

std::string bytes(std::size_t count) {
  std::string text(count, ' ');
  for (std::size_t i = 0; i < count; ++i) text[i] = static_cast<char>('a' + i * 7919 % 23);
  return text;
}

// A short text, so that counting its trigrams takes no time beside the steps.
TEST(PredictedSteps, OfTextAreMeasured) {
  Folder folder;
  const std::string text = folder.write("text", bytes(400'000));
  expect_predicted("gpt-nano.toml", text, 60);
  expect_predicted("bert-tiny.toml", text, 30);
  expect_predicted("shakespeare-char.toml", text, 60);
}

TEST(PredictedSteps, OfImagesAreMeasured) {
  Folder folder;
  constexpr std::size_t kImage = 1 + 3 * 32 * 32;
  for (const char* file : {"data_batch_1.bin", "test_batch.bin"}) {
    std::string images = bytes(512 * kImage);
    for (std::size_t at = 0; at < images.size(); at += kImage) images[at] = 1;  // its class
    folder.write(file, images);
  }
  expect_predicted("resnet18-cifar10.toml", folder.path(), 8);
}

}  // namespace
}  // namespace trireme::testing
