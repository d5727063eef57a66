// trireme convert and inspect --part: a run goes on where its configuration was written anew.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/cli/mesh_runs.h"

namespace trireme::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using Json = nlohmann::json;

class Convert : public MeshRuns {
 protected:
  Convert() : MeshRuns({"checkpoint.every=3"}) {}

  CommandResult convert(const Words& words) const {
    Words all = {"convert", "run"};
    all.insert(all.end(), words.begin(), words.end());
    return run(all);
  }
  // Only the checkpoint of step 3 is left of `from`.
  void halve(const std::string& from, const std::string& to) const {
    fs::copy(folder_.file(from), folder_.file(to), fs::copy_options::recursive);
    fs::remove_all(folder_.file(to + "/checkpoint/step-00000006"));
    std::ofstream(folder_.file(to + "/checkpoint/latest")) << "step-00000003\n";
  }
  std::string config_of_run() const { return read_file(folder_.file("run/config.toml")); }
};

TEST_F(Convert, TheRunGoesOnOnTheNewLayout) {
  const std::string plain = train("whole", "1", {});
  for (const Words& words : {Words{"--to", "zero3", "--ranks", "3"},
                             {"--to", "zero1", "--ranks", "4", "--pipeline", "2"},
                             {"--to", "zero1", "--ranks", "3", "--set", "batch.shares=2:1:1"},
                             {"--to", "server", "--ranks", "2", "--set", "server.count=2"}}) {
    fs::remove_all(folder_.file("run"));
    halve("whole", "run");
    // Left by a resume that was killed before it began.
    fs::copy_file(folder_.file("run/config.toml"), folder_.file("run/config.toml.former"));
    const CommandResult converted = convert(words);
    ASSERT_EQ(converted.code, 0) << converted.err;
    EXPECT_THAT(converted.out, AllOf(HasSubstr("the checkpoint of step 3"),
                                     HasSubstr("none needs to be converted"),
                                     HasSubstr("train --resume run --ranks " + words[3])));
    const CommandResult resumed = run({"train", "--resume", "run", "--ranks", words[3]});
    ASSERT_EQ(resumed.code, 0) << resumed.out << resumed.err;
    EXPECT_THAT(resumed.out, HasSubstr("continuing after step 3"));
    EXPECT_THAT(config_of_run(), HasSubstr("sync = \"" + words[1] + "\""));
    EXPECT_EQ(hash("run"), plain) << words[1];
  }
}

TEST_F(Convert, ARunOfOtherAxesGoesOnOnOneRank) {
  train("whole", "2", {"parallel.tensor=2"});
  halve("whole", "run");
  ASSERT_EQ(convert({"--to", "plain"}).code, 0);
  const CommandResult resumed = run({"train", "--resume", "run"});
  ASSERT_EQ(resumed.code, 0) << resumed.out << resumed.err;
  EXPECT_NEAR(validation("run"), validation("whole"), 1e-3 * validation("whole"));
}

TEST_F(Convert, ARunWithServersGoesOnWithoutThem) {
  const std::string plain = train("plain", "1", {});
  train("whole", "2", {"parallel.sync=server", "server.count=2"});
  halve("whole", "run");
  const CommandResult converted = convert({"--to", "zero1", "--ranks", "2"});
  ASSERT_EQ(converted.code, 0) << converted.err;
  const CommandResult resumed = run({"train", "--resume", "run", "--ranks", "2"});
  ASSERT_EQ(resumed.code, 0) << resumed.out << resumed.err;
  EXPECT_THAT(resumed.out, HasSubstr("continuing after step 3"));
  EXPECT_EQ(hash("run"), plain);
}

TEST_F(Convert, WritesWhatChangesAndItsSource) {
  train("run", "1", {});
  const CommandResult json = convert({"--to", "zero2", "--ranks", "2", "--json"});
  ASSERT_EQ(json.code, 0) << json.err;
  const Json event = Json::parse(json.out);
  EXPECT_EQ(event.at("event"), "changed");
  EXPECT_EQ(event.at("step"), 6);
  EXPECT_EQ(event.at("key"), "parallel.sync");
  EXPECT_EQ(event.at("now"), "\"zero2\"");
  EXPECT_THAT(config_of_run(), HasSubstr("sync = \"zero2\""));
  EXPECT_THAT(config_of_run(), HasSubstr("# convert"));
  EXPECT_THAT(config_of_run(), Not(HasSubstr("tensor = 1                              # convert")));
  const std::string before = config_of_run();
  EXPECT_THAT(convert({"--to", "zero2", "--ranks", "2"}).out,
              HasSubstr("config.toml has this layout already"));
  EXPECT_EQ(config_of_run(), before);
}

TEST_F(Convert, RefusesWhatCannotBeAndChangesNothing) {
  train("run", "1", {});
  const std::string before = config_of_run();
  const auto refused = [&](const Words& words) {
    const CommandResult result = convert(words);
    EXPECT_EQ(result.code, 2) << result.out;
    EXPECT_EQ(config_of_run(), before);
    return result.err;
  };
  EXPECT_THAT(refused({"--to", "zero9"}), HasSubstr("zero9"));
  EXPECT_THAT(refused({"--to", "plain", "--ranks", "3", "--tensor", "2"}),
              HasSubstr("parallel.tensor = 2 does not divide the ranks"));
  EXPECT_THAT(refused({"--to", "plain", "--ranks", "9"}), HasSubstr("micro-batches"));
  EXPECT_THAT(refused({"--to", "diloco", "--ranks", "2"}),
              HasSubstr("--changed parallel.sync=diloco"));
  EXPECT_THAT(refused({"--to", "server", "--ranks", "2", "--set", "server.staleness=1"}),
              HasSubstr("--changed parallel.sync=server"));
  EXPECT_THAT(run({"convert", "nowhere", "--to", "plain"}).err, HasSubstr("nowhere"));
  const CommandResult identity = convert({"--to", "plain", "--set", "batch.micro=1"});
  EXPECT_NE(identity.code, 0);
  EXPECT_THAT(identity.err, HasSubstr("batch.micro"));
  EXPECT_EQ(config_of_run(), before);
  std::ofstream(folder_.file("run/checkpoint/step-00000006/state.safetensors"), std::ios::app)
      << "more";
  EXPECT_THAT(convert({"--to", "zero1", "--ranks", "2"}).err, HasSubstr("state.safetensors"));
  EXPECT_EQ(config_of_run(), before);
}

TEST_F(Convert, InspectShowsThePartsOfACheckpoint) {
  train("run", "1", {});
  EXPECT_THAT(run({"inspect", "run"}).out,
              AllOf(HasSubstr("--part data has 0 tensors"), HasSubstr("besides the weights")));
  std::istringstream lines(run({"inspect", "run", "--part", "train", "--json"}).out);
  std::int64_t weights = 0, states = 0;
  Json part;
  for (std::string line; std::getline(lines, line);) {
    const Json event = Json::parse(line);
    if (event.at("event") == "part") {
      part = event;
      continue;
    }
    EXPECT_EQ(event.at("part"), "train");
    const bool state = event.at("name").get<std::string>().starts_with("optimizer/");
    EXPECT_EQ(event.at("file"), state ? "state.safetensors" : "model.safetensors");
    (state ? states : weights) += event.at("bytes").get<std::int64_t>();
  }
  EXPECT_EQ(states, 2 * weights) << "AdamW has two moments";
  EXPECT_EQ(part.at("bytes"), states + weights);
  EXPECT_EQ(Json::parse(part.at("metadata").get<std::string>()).at("optimizer_steps"), 6);
  EXPECT_EQ(run({"inspect", "file://" + folder_.file("run"), "--hash"}).out,
            run({"inspect", "run", "--hash"}).out);
  const std::string data = run({"inspect", "run/checkpoint/step-00000003", "--part", "data"}).out;
  EXPECT_THAT(data, HasSubstr("\"position\":3"));
  const CommandResult none = run({"inspect", "run", "--part", "none"});
  EXPECT_EQ(none.code, 2);
  EXPECT_THAT(none.err, HasSubstr("Its parts are data, early_stop, train"));
  EXPECT_EQ(
      run({"inspect", "run/checkpoint/step-00000003/model.safetensors", "--part", "train"}).code,
      2);
}

}  // namespace
}  // namespace trireme::testing
