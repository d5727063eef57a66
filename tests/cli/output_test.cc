// What a run prints and leaves: --json, the folder, the stable event names.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/cli/command.h"

namespace trireme::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using Json = nlohmann::json;

std::vector<Json> json_lines(const std::string& text) {
  std::vector<Json> out;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) out.push_back(Json::parse(line));
  return out;
}

TEST(Output, OfATrainingRun) {
  Folder folder;
  const std::string config = tiny_config(folder, "steps = 12\nvalidate_every = 5\n");
  const CommandResult result =
      trireme_command({"train", config, "--ranks", "2"}).in(folder.path()).run();
  ASSERT_EQ(result.code, 0) << result.out << result.err;
  for (const char* part :
       {"Plan for tiny on 2 ranks", "  memory ", "  cores ", "run      runs/tiny",
        "expected time: ", "step 12 of 12", "validation loss: ", "byte trigram with back-off",
        "predicted      measured", "the run is in runs/tiny"}) {
    EXPECT_THAT(result.out, HasSubstr(part));
  }
  const std::string last = result.out.substr(result.out.rfind("\nnext: "));
  EXPECT_THAT(last, HasSubstr("generate runs/tiny --prompt"));
  for (const char* file : {"config.toml", "events.jsonl", "loss.svg", "checkpoint/latest"}) {
    EXPECT_TRUE(fs::exists(folder.file(std::string("runs/tiny/") + file))) << file;
  }
  // The same job again takes the next free folder.
  const CommandResult again =
      trireme_command({"train", config, "--set", "train.steps=1"}).in(folder.path()).run();
  EXPECT_EQ(again.code, 0) << again.err;
  EXPECT_TRUE(fs::exists(folder.file("runs/tiny-2/loss.svg")));
}

TEST(Output, JsonIsAllThatStandsOnStandardOutput) {
  Folder folder;
  const std::string config = tiny_config(folder, "steps = 6\nvalidate_every = 3\n");
  const CommandResult result =
      trireme_command({"train", config, "--ranks", "2", "--json", "--out", "run"})
          .in(folder.path())
          .run();
  ASSERT_EQ(result.code, 0) << result.out << result.err;
  int steps = 0, validations = 0, plans = 0;
  for (const Json& event : json_lines(result.out)) {
    const std::string kind = event.at("event");
    plans += kind == "plan";
    validations += kind == "validation";
    if (kind != "step") continue;
    ++steps;
    EXPECT_EQ(event.at("step"), steps);
    for (const char* field :
         {"loss", "step_seconds", "tokens_per_second", "communication_seconds", "input_seconds"}) {
      EXPECT_TRUE(event.at(field).is_number()) << field;
    }
  }
  EXPECT_EQ(steps, 6);
  EXPECT_EQ(validations, 3);
  EXPECT_GE(plans, 2);
  EXPECT_EQ(json_lines(result.out), json_lines(read_file(folder.file("run/events.jsonl"))));
  const CommandResult eval = trireme_command({"eval", "run", "--json"}).in(folder.path()).run();
  ASSERT_EQ(eval.code, 0) << eval.err;
  const std::vector<Json> events = json_lines(eval.out);
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].at("event"), "validation");
  EXPECT_EQ(events[0].at("step"), 6);
  // The same weights on the same text: the loss that training printed last.
  double last = 0;
  for (const Json& event : json_lines(result.out)) {
    if (event.at("event") == "validation") last = event.at("loss");
  }
  EXPECT_EQ(events[0].at("loss").get<double>(), last);
}

TEST(Output, ExpectedTimeChangesNoBitAndPlanStartsNothing) {
  Folder folder;
  const std::string config = tiny_config(folder, "steps = 5\n");
  const CommandResult plan =
      trireme_command({"plan", config, "--ranks", "2"}).in(folder.path()).run();
  EXPECT_EQ(plan.code, 0) << plan.err;
  EXPECT_THAT(plan.out, HasSubstr("Plan for tiny on 2 ranks"));
  EXPECT_FALSE(fs::exists(folder.file("runs")));
}

TEST(Output, GenerateContinuesThePromptTheSameWayForASeed) {
  Folder folder;
  const std::string config = tiny_config(folder, "steps = 3\n");
  ASSERT_EQ(trireme_command({"train", config, "--out", "run"}).in(folder.path()).run().code, 0);
  const auto text = [&](const std::string& seed) {
    const CommandResult result =
        trireme_command({"generate", "run", "--prompt", "line", "--bytes", "30", "--seed", seed})
            .in(folder.path())
            .run();
    EXPECT_EQ(result.code, 0) << result.err;
    return result.out;
  };
  EXPECT_EQ(text("1").substr(0, 4), "line");
  EXPECT_EQ(text("1"), text("1"));
  EXPECT_NE(text("1"), text("2"));
}

}  // namespace
}  // namespace trireme::testing
