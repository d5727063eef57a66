// The output and the files of a run: --json, the folder, the stable event names.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/cli/command.h"
#include "trireme/base/error.h"

namespace trireme::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using Json = nlohmann::json;

std::vector<Json> json_lines(const std::string& text) {
  std::vector<Json> out;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) out.push_back(Json::parse(line));
  return out;
}

TEST(Output, OfATrainingRun) {
  Folder folder;
  // A checkpoint is written beside the steps, since the plan counts its snapshot.
  const std::string config =
      tiny_config(folder, "steps = 12\nvalidate_every = 5\n[checkpoint]\nevery = 4\n");
  // Larger than tiny: for small products, libraries take some 12 MB less than is planned.
  const CommandResult result = trireme_command({"train", config, "--ranks", "2", "--set",
                                                "model.width=128", "--set", "model.block=256"})
                                   .in(folder.path())
                                   .run();
  ASSERT_EQ(result.code, 0) << result.out << result.err;
  for (const char* part :
       {"Plan for tiny on 2 ranks", "  memory ", "  cores ", "run      runs/tiny",
        "expected time: ", "step 12 of 12", "validation loss: ", "byte trigram with back-off",
        "predicted      measured", "the run is in runs/tiny"}) {
    EXPECT_THAT(result.out, HasSubstr(part));
  }
  const std::string last = result.out.substr(result.out.rfind("\nnext: "));
  EXPECT_THAT(last, HasSubstr("generate runs/tiny --prompt \"line\""));
  for (const char* file :
       {"config.toml", "events.jsonl", "loss.svg", "tensorboard", "checkpoint/latest"}) {
    EXPECT_TRUE(fs::exists(folder.file(std::string("runs/tiny/") + file))) << file;
  }
  // The plan's memory against the rank that uses most.
  double predicted = 0, measured = 0, snapshot = 0;
  for (const Json& event : json_lines(read_file(folder.file("runs/tiny/events.jsonl")))) {
    if (event.contains("measured_memory_bytes")) measured = event["measured_memory_bytes"];
    if (event.contains("measured_snapshot_bytes")) snapshot = event["measured_snapshot_bytes"];
    if (event.contains("predicted_memory_bytes")) predicted = event["predicted_memory_bytes"];
  }
  EXPECT_GT(snapshot, 0);
  EXPECT_NEAR(predicted / measured, 1.0, 0.12) << predicted << " predicted, " << measured;
  // The same job run again takes the next free folder.
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
  int steps = 0, validations = 0, plans = 0, checkpoints = 0;
  for (const Json& event : json_lines(result.out)) {
    const std::string kind = event.at("event");
    plans += kind == "plan";
    validations += kind == "validation";
    if (kind == "checkpoint") {
      ++checkpoints;
      EXPECT_EQ(event.at("step"), 6);
      EXPECT_GT(event.at("written_bytes"), 0);
      EXPECT_EQ(event.at("kept_bytes"), 0);
    }
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
  EXPECT_EQ(checkpoints, 1);
  EXPECT_GE(plans, 2);
  EXPECT_EQ(json_lines(result.out), json_lines(read_file(folder.file("run/events.jsonl"))));
  const CommandResult eval = trireme_command({"eval", "run", "--json"}).in(folder.path()).run();
  ASSERT_EQ(eval.code, 0) << eval.err;
  const std::vector<Json> events = json_lines(eval.out);
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].at("event"), "validation");
  EXPECT_EQ(events[0].at("step"), 6);
  // The same weights on the same text give the last loss that training printed.
  double last = 0;
  for (const Json& event : json_lines(result.out)) {
    if (event.at("event") == "validation") last = event.at("loss");
  }
  EXPECT_EQ(events[0].at("loss").get<double>(), last);
}

TEST(Output, TraceIsOneTimelineOfAllRanks) {
  Folder folder;
  const std::string config = tiny_config(folder, "steps = 6\nvalidate_every = 3\n");
  const CommandResult result = trireme_command({"train", config, "--ranks", "2", "--out", "run",
                                                "--trace", folder.file("a b.json")})
                                   .in(folder.path())
                                   .run();
  ASSERT_EQ(result.code, 0) << result.out << result.err;
  const Json document = Json::parse(read_file(folder.file("a b.json")));
  std::map<std::pair<int, std::string>, std::vector<std::pair<double, double>>> spans;
  for (const Json& event : document.at("traceEvents")) {
    if (event.at("ph") != "X") continue;
    const double begin = event.at("ts"), length = event.at("dur");
    EXPECT_GE(begin, 0);
    EXPECT_GE(length, 0);
    spans[{event.at("pid"), event.at("name")}].emplace_back(begin, begin + length);
  }
  const auto inside = [](const auto& inner, const auto& outer) {
    return std::any_of(outer.begin(), outer.end(), [&](const auto& one) {
      return one.first <= inner.first && inner.second <= one.second;
    });
  };
  for (int rank = 0; rank < 2; ++rank) {
    const auto of = [&](const char* name) { return spans[std::pair(rank, std::string(name))]; };
    EXPECT_EQ(of("step").size(), 6u);
    EXPECT_EQ(of("optimizer").size(), 6u);
    // Each step ends with a vote, and so do the three validations.
    EXPECT_EQ(of("all_gather vote").size(), 6u + 3u);
    EXPECT_GE(of("forward").size(), 6u);
    EXPECT_EQ(of("forward").size(), of("backward").size());
    EXPECT_GE(of("validation").size(), 2u);
    EXPECT_FALSE(of("waiting for peers").empty());
    EXPECT_FALSE(of("transferring").empty());
    for (const char* part : {"forward", "backward", "optimizer", "wait for gradients"}) {
      for (const auto& span : of(part)) EXPECT_TRUE(inside(span, of("step"))) << part;
    }
  }
  // On one host there is one clock: a vote ends on no rank before it began on the other.
  for (std::size_t i = 0; i < 6; ++i) {
    const auto a = spans[std::pair(0, "all_gather vote")][i];
    const auto b = spans[std::pair(1, "all_gather vote")][i];
    EXPECT_LE(std::max(a.first, b.first), std::min(a.second, b.second));
  }
  const CommandResult refused =
      trireme_command({"train", config, "--trace", folder.file("missing/trace.json")})
          .in(folder.path())
          .run();
  EXPECT_EQ(refused.code, 2);
  EXPECT_THAT(refused.err, HasSubstr("missing/trace.json"));
}

TEST(Output, ProfileHasTheOperatorsOfThreeSteps) {
  Folder folder;
  const std::string config = tiny_config(folder, "steps = 7\nvalidate_every = 0\n");
  const auto profiled = [&](const std::string& file, const std::string& more) {
    return trireme_command({"train", config, "--profile", folder.file(file), "--set", more})
        .in(folder.path())
        .run();
  };
  ASSERT_EQ(profiled("p.json", "train.steps=7").code, 0);
  const auto products = [&](const std::string& file) {
    int count = 0;
    const Json document = Json::parse(read_file(folder.file(file)));
    for (const Json& event : document.at("traceEvents"))
      count += event.value("cat", "") == "cpu_op" &&
               event.value("name", "").find("LinearFunction") != std::string::npos;
    return count;
  };
  const int of_three = products("p.json");
  EXPECT_GT(of_three, 0);
  ASSERT_EQ(profiled("short.json", "train.steps=4").code, 0);
  EXPECT_EQ(3 * products("short.json"), of_three) << "step 4 is the last one";
  const CommandResult refused = profiled("missing/p.json", "train.steps=7");
  EXPECT_EQ(refused.code, 2);
  EXPECT_THAT(refused.err, AllOf(HasSubstr("--profile"), HasSubstr("missing/p.json")));
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

// A Checkpointer in a user's own loop writes its folders where it is told, outside of any run.
TEST(Output, InspectAndCompareTakeAnyCheckpointFolder) {
  Folder folder;
  const std::string config = tiny_config(folder, "steps = 4\n");
  const auto run = [&](std::vector<std::string> words) {
    const CommandResult result = trireme_command(std::move(words)).in(folder.path()).run();
    EXPECT_EQ(result.code, 0) << result.err;
    return result.out;
  };
  run({"train", config, "--out", "run", "--set", "checkpoint.every=2"});
  run({"train", config, "--out", "other", "--set", "train.seed=9"});
  fs::copy(folder.file("run/checkpoint"), folder.file("mine"), fs::copy_options::recursive);
  const std::string hash = run({"inspect", "run", "--hash"});
  EXPECT_EQ(hash.size(), 65u);
  EXPECT_EQ(hash, hash_of_run(folder.file("run")));
  EXPECT_EQ(run({"inspect", "mine", "--hash"}), hash);
  EXPECT_EQ(run({"inspect", "mine/step-00000004/", "--hash"}), hash);
  EXPECT_NE(run({"inspect", "mine/step-00000002", "--hash"}), hash);
  EXPECT_EQ(run({"inspect", "run/checkpoint", "--hash"}), hash);

  const std::string same = run({"compare", "mine", "run"});
  EXPECT_THAT(same, AllOf(HasSubstr(hash), HasSubstr("the weights are the same")));
  EXPECT_THAT(run({"compare", "mine", "other"}), HasSubstr("the weights differ"));
  const std::vector<Json> lines = json_lines(run({"compare", "mine", "--json"}));
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_EQ(lines[0].at("steps"), 4);
  EXPECT_EQ(lines[0].at("weights_sha256").get<std::string>() + "\n", hash);
  EXPECT_FALSE(lines[0].contains("loss"));
  const std::string keys = run({"compare", "run", "other"});
  EXPECT_THAT(keys, AllOf(HasSubstr("train.seed"), HasSubstr("the curves are in compare.svg"),
                          Not(HasSubstr("0000000001"))));

  const CommandResult not_drawn =
      trireme_command({"compare", "run", "--svg", "none/c.svg"}).in(folder.path()).run();
  EXPECT_EQ(not_drawn.code, static_cast<int>(ExitCode::Resource)) << not_drawn.err;
  EXPECT_THAT(not_drawn.out, HasSubstr("no key differs")) << "the figures are printed all the same";
}

TEST(Output, ATableThatCannotBeWrittenIsRefusedBeforeItMeasures) {
  const CommandResult result = trireme_command({"doctor", "--tune", "/none/table.toml"}).run();
  EXPECT_EQ(result.code, static_cast<int>(ExitCode::Resource));
  EXPECT_THAT(result.err, HasSubstr("cannot write /none/table.toml"));
  EXPECT_EQ(result.out, "") << "nothing was measured";
}

TEST(Output, OfATuningIsNotJson) {
  const CommandResult result = trireme_command({"doctor", "--tune", "a.toml", "--json"}).run();
  EXPECT_EQ(result.code, 2);
  EXPECT_THAT(result.err, HasSubstr("--tune cannot be combined with --json"));
  EXPECT_EQ(result.out, "");
}

// A closed pipe: it once went on to its last byte, and said that "the run goes on without it".
TEST(Output, GeneratedTextEndsWithItsReader) {
  Folder folder;
  const std::string config = tiny_config(folder, "steps = 1\n");
  ASSERT_EQ(trireme_command({"train", config, "--out", "run"}).in(folder.path()).run().code, 0);
  const std::string line =
      std::string(TRIREME_PROGRAM) + " generate run --prompt ab --bytes 1000000000 | head -c 3";
  const CommandResult result = cached_command({"/bin/sh", "-c", line}).in(folder.path()).run(60);
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_EQ(result.out.substr(0, 2), "ab");
  EXPECT_THAT(result.err, Not(HasSubstr("goes on")));
  EXPECT_EQ(result.left_behind, 0);
}

TEST(Output, FiguresInJsonAreNumbers) {
  Folder folder;
  const std::string config = tiny_config(folder, "steps = 1\n");
  ASSERT_EQ(trireme_command({"train", config, "--out", "run"}).in(folder.path()).run().code, 0);
  std::map<std::string, Json> shapes;
  for (const Json& one :
       json_lines(trireme_command({"inspect", "run", "--json"}).in(folder.path()).run().out)) {
    EXPECT_EQ(one.at("event"), "tensor");
    shapes[one.at("name")] = one.at("shape");
    std::int64_t count = 1;
    for (const Json& dim : one.at("shape")) count *= dim.get<std::int64_t>();
    EXPECT_EQ(one.at("bytes"), 4 * count) << one;
  }
  EXPECT_GT(shapes.size(), 10u);
  const std::vector<Json> doctor = json_lines(trireme_command({"doctor", "--json"}).run().out);
  ASSERT_EQ(doctor.size(), 1u);
  for (const char* figure :
       {"usable_cores", "online_cores", "memory_bytes", "memory_free_bytes", "disk_free_bytes"}) {
    EXPECT_TRUE(doctor[0].at(figure).is_number_integer()) << figure;
    EXPECT_GT(doctor[0].at(figure), 0) << figure;
  }
  EXPECT_TRUE(doctor[0].at("mpi").is_array());
  EXPECT_TRUE(doctor[0].at("devices").is_array());
  EXPECT_THAT(doctor[0].at("device_kinds"), ::testing::StartsWith("cpu"));
  EXPECT_FALSE(doctor[0].at("train_device_auto").get<std::string>().empty());
  EXPECT_EQ(doctor[0].at("environment"), "none: one process");
  EXPECT_EQ(doctor[0].at("environment_reasons"), Json::array());
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
