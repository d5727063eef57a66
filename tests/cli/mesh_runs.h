// Runs the command for a tiny GPT over an axis of parallelism; shared by the tests of all axes.
#pragma once

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "tests/cli/command.h"

namespace trireme::testing {

class MeshRuns : public ::testing::Test {
 protected:
  using Words = std::vector<std::string>;

  /// `always`: assignments of every run, before the run's own.
  explicit MeshRuns(Words always = {}) : always_(std::move(always)) {}

  /// Runs "train" or "plan" for `ranks` ranks, with assignments "key=value" and the words `more`.
  CommandResult on(const std::string& command, const std::string& ranks, const Words& assignments,
                   const Words& more = {}) const {
    Words words = {command, config_, "--ranks", ranks};
    words.insert(words.end(), more.begin(), more.end());
    for (const Words& all : {always_, assignments})
      for (const std::string& one : all) words.insert(words.end(), {"--set", one});
    return run(words);
  }
  /// Trains and returns the hash of the weights.
  std::string train(const std::string& out, const std::string& ranks,
                    const Words& assignments) const {
    const CommandResult result = on("train", ranks, assignments, {"--out", out});
    EXPECT_EQ(result.code, 0) << out << ": " << result.out << result.err;
    return hash(out);
  }
  std::string hash(const std::string& out) const { return hash_of_run(folder_.file(out)); }
  CommandResult run(const Words& words) const {
    return trireme_command(words).in(folder_.path()).run(120);
  }
  /// The last validation loss.
  double validation(const std::string& out) const {
    double last = 0;
    std::istringstream lines(read_file(folder_.file(out + "/events.jsonl")));
    for (std::string line; std::getline(lines, line);)
      if (const auto event = nlohmann::json::parse(line); event.at("event") == "validation")
        last = event.at("loss");
    return last;
  }

  const Words always_;
  Folder folder_;
  const std::string config_ = tiny_config(folder_, "steps = 6\n");
};

}  // namespace trireme::testing
