// Pipelines through the command: the bits of one process, the recorded passes, and user errors. An
// error is refused before anything starts if it can be known; else the job ends in bounded time.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/cli/command.h"

namespace trireme::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;
using Json = nlohmann::json;
using Words = std::vector<std::string>;

// tiny_config: four blocks (embed, layer.0, layer.1, head), four micro-batches of two sequences.
class Pipeline : public ::testing::Test {
 protected:
  CommandResult run_command(Words arguments) const {
    return trireme_command(std::move(arguments)).in(folder_.path()).run(90);
  }
  // `values`: arguments of --set.
  CommandResult train(const Words& values, const std::string& ranks, Words more = {}) const {
    return run_command(with(values, ranks, "train", std::move(more)));
  }
  Words with(const Words& values, const std::string& ranks, const std::string& command,
             Words more) const {
    Words words = {command, tiny_, "--ranks", ranks};
    for (const std::string& value : values) words.insert(words.end(), {"--set", value});
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }
  // `plan` and `train` refuse it before a folder is made or a rank started; returns the sentence.
  std::string refused(const Words& values, const std::string& ranks) const {
    const CommandResult planned = run_command(with(values, ranks, "plan", {}));
    const CommandResult started = train(values, ranks);
    EXPECT_EQ(planned.code, 2) << planned.out;
    EXPECT_EQ(started.code, 2) << started.out << started.err;
    EXPECT_EQ(started.out, "");
    EXPECT_EQ(started.err, planned.err);
    EXPECT_FALSE(fs::exists(folder_.file("runs")));
    return started.err;
  }
  std::string hash(const std::string& run) const { return hash_of_run(folder_.file(run)); }

  Folder folder_;
  const std::string tiny_ = tiny_config(folder_, "steps = 6\nvalidate_every = 0\n");
};

TEST_F(Pipeline, TrainsTheBitsOfOneProcess) {
  ASSERT_EQ(train({}, "1", {"--out", "one"}).code, 0);
  const std::string mine = folder_.write("mine.txt",
                                         "0: F0.0 F0.1 F0.2 F0.3 B0.0 B0.1 B0.2 B0.3\n"
                                         "1: F1.0 F1.1 B1.0 F1.2 B1.1 F1.3 B1.2 B1.3\n");
  const std::vector<std::pair<Words, std::string>> layouts = {
      {{"parallel.pipeline=2"}, "2"},
      {{"parallel.pipeline=2", "parallel.schedule=" + mine}, "2"},
      {{"parallel.pipeline=4", "parallel.schedule=zb-h1", "memory.recompute=full"}, "4"},
      {{"parallel.pipeline=2", "parallel.schedule=zb-v", "parallel.sync=zero1"}, "4"}};
  for (std::size_t i = 0; i < layouts.size(); ++i) {
    const std::string run = "run-" + std::to_string(i);
    const CommandResult result = train(layouts[i].first, layouts[i].second, {"--out", run});
    ASSERT_EQ(result.code, 0) << result.out << result.err;
    EXPECT_THAT(result.out, AllOf(HasSubstr("pipeline of "), HasSubstr("imbalance")));
    EXPECT_EQ(hash(run), hash("one")) << result.out;
  }
}

// Two pipelines, whose ranks own shards of gradients and optimizer state; checkpoints are whole.
TEST_F(Pipeline, WhatZero3SavedIsResumedOnOtherLayouts) {
  ASSERT_EQ(train({}, "1", {"--out", "one"}).code, 0);
  const CommandResult saved =
      train({"parallel.pipeline=2", "parallel.sync=zero3", "checkpoint.every=3"}, "4",
            {"--out", "whole"});
  ASSERT_EQ(saved.code, 0) << saved.out << saved.err;
  EXPECT_THAT(saved.out, HasSubstr("ZeRO-3 (all state over 2 ranks, two blocks whole)"));
  EXPECT_EQ(hash("whole"), hash("one"));
  const std::vector<std::vector<std::string>> layouts = {{"1", "1", "plain"},
                                                         {"4", "2", "zero1"},
                                                         {"6", "2", "zero2"},
                                                         {"8", "2", "hybrid"},
                                                         {"2", "1", "zero3"}};
  for (const auto& layout : layouts) {
    const std::string run = "part-" + layout[0];
    fs::copy(folder_.file("whole"), folder_.file(run), fs::copy_options::recursive);
    fs::remove_all(folder_.file(run + "/checkpoint/step-00000006"));
    folder_.write(run + "/checkpoint/latest", "step-00000003\n");
    const CommandResult resumed =
        run_command({"train", "--resume", run, "--ranks", layout[0], "--set",
                     "parallel.pipeline=" + layout[1], "--set", "parallel.sync=" + layout[2]});
    EXPECT_EQ(resumed.code, 0) << resumed.out << resumed.err;
    EXPECT_THAT(resumed.out, HasSubstr("continuing after step 3"));
    EXPECT_EQ(hash(run), hash("one")) << layout[0] << " ranks, " << layout[2];
  }
}

// In 1F1B a backward is one pass; in ZB-H1 it is two.
TEST_F(Pipeline, ATraceHoldsPassesThatShowScheduleDraws) {
  for (const std::string& schedule : {std::string("1f1b"), std::string("zb-h1")}) {
    const std::string trace = folder_.file("trace-" + schedule + ".json");
    const CommandResult result =
        train({"parallel.pipeline=2", "parallel.schedule=" + schedule, "parallel.data=2"}, "4",
              {"--out", schedule, "--trace", trace});
    ASSERT_EQ(result.code, 0) << result.out << result.err;
    std::map<int, int> forwards;  // by rank
    const Json document = Json::parse(read_file(trace));
    for (const Json& event : document.at("traceEvents"))
      if (event.at("ph") == "X" && event.at("name") == "F1.0") ++forwards[event.at("pid")];
    EXPECT_EQ(forwards.size(), 2u) << "ranks 2 and 3 hold stage 1";

    EXPECT_THAT(result.out, AllOf(ContainsRegex("recorded  bubble +[0-9.]+ %"),
                                  HasSubstr("are drawn in " + schedule + "/passes.svg")));
    EXPECT_THAT(read_file(folder_.file(schedule + "/passes.svg")),
                AllOf(HasSubstr(schedule), HasSubstr("</svg>")));

    const std::string passes = folder_.file(schedule + "/passes.jsonl");
    const CommandResult shown = run_command({"show", "schedule", "--recorded", passes});
    ASSERT_EQ(shown.code, 0) << shown.err;
    EXPECT_THAT(shown.out,
                AllOf(HasSubstr("2 stages on 2 ranks, 2 micro-batches"),
                      ContainsRegex("recorded  bubble +[0-9.]+ %"),
                      ContainsRegex("simulated bubble +[0-9.]+ %"), HasSubstr("rank 1 ")));
    for (const char* pass : {"I1.0", "W0.1"})
      EXPECT_EQ(shown.out.find(pass) != std::string::npos, schedule == "zb-h1") << shown.out;
    const CommandResult drawn =
        run_command({"show", "schedule", "--recorded", passes, "--svg", "a.svg"});
    EXPECT_EQ(drawn.code, 0) << drawn.err;
    EXPECT_THAT(read_file(folder_.file("a.svg")), HasSubstr("</svg>"));
  }
}

TEST_F(Pipeline, MoreStagesThanBlocksIsRefused) {
  EXPECT_THAT(refused({"parallel.pipeline=5"}, "5"),
              AllOf(HasSubstr("5 pipeline stages are more than the model's 4 blocks"),
                    HasSubstr("Lower parallel.pipeline")));
  EXPECT_THAT(
      refused({"parallel.pipeline=2", "parallel.chunks=3", "parallel.schedule=interleaved-1f1b"},
              "2"),
      HasSubstr("6 pipeline stages are more than the model's 4 blocks"));
}

TEST_F(Pipeline, FewMicroBatchesWarnWithTheBubble) {
  const Words few = {"parallel.pipeline=2", "batch.micro=8", "train.steps=1"};
  const char* warning =
      "warning  1 micro-batch for 2 pipeline stages: a rank waits 50 % of the time; a smaller "
      "batch.micro or a larger batch.global fills the pipeline";
  const CommandResult planned = run_command(with(few, "2", "plan", {}));
  EXPECT_THAT(planned.out, HasSubstr(warning)) << planned.err;
  const CommandResult trained = train(few, "2", {"--out", "few"});
  EXPECT_EQ(trained.code, 0) << trained.err;
  EXPECT_THAT(trained.out, HasSubstr(warning));
  const CommandResult events = train(few, "2", {"--out", "events", "--json"});
  EXPECT_EQ(events.code, 0) << events.err;
  EXPECT_THAT(events.err, HasSubstr(warning));
  EXPECT_THAT(run_command(with({"parallel.pipeline=2"}, "2", "plan", {})).out,
              Not(HasSubstr("warning")));
}

TEST_F(Pipeline, AFaultyScheduleFileIsDrawnWithTheCellMarked) {
  const auto fault = [&](const std::string& text) {
    const std::string file = folder_.write("mine.txt", text);
    return refused({"parallel.pipeline=2", "parallel.schedule=" + file}, "2");
  };
  const std::string good = "1: F1.0 B1.0 F1.1 B1.1 F1.2 B1.2 F1.3 B1.3\n";
  EXPECT_THAT(fault("0: F0.0 F0.1 F0.2 F0.3 B0.0 B0.1 B0.2\n" + good),
              AllOf(HasSubstr("B0.3 is missing"),
                    HasSubstr("\n  0: ... F0.1 F0.2 F0.3 B0.0 B0.1 B0.2 >B0.3?<"),
                    HasSubstr("\n  1: ... B1.0 F1.1")));
  EXPECT_THAT(fault("0: F0.0 F0.1 F0.2 F0.3 B0.0 B0.1 B0.1 B0.2 B0.3\n" + good),
              AllOf(HasSubstr("B0.1"), HasSubstr("B0.0 B0.1 >B0.1<"), HasSubstr("twice")));
  EXPECT_THAT(fault("0: F0.0 F0.1 B0.0 B0.1\n1: F1.0 F1.1 B1.0 B1.1\n"),
              AllOf(HasSubstr("has 2 micro-batches"), HasSubstr("a step of the pipeline has 4")));
  EXPECT_THAT(fault("0: F0.0 B0.0 F0.1 B0.1 F0.2 B0.2 F0.3 B0.3\n"),
              HasSubstr("is for 1 ranks, and the pipeline has 2"));
}

TEST_F(Pipeline, AMeshThatIsNotTheRanksShowsTheArithmetic) {
  EXPECT_THAT(refused({"parallel.pipeline=2"}, "3"),
              AllOf(HasSubstr("3 = 1 x 2 + 1"), HasSubstr("a multiple of 2 ranks")));
  EXPECT_THAT(
      refused({"parallel.pipeline=2", "parallel.data=4"}, "4"),
      AllOf(HasSubstr("parallel.data = 4 x parallel.pipeline = 2 are 8 ranks, but the job has 4 "
                      "ranks"),
            HasSubstr("--ranks 8")));
}

TEST_F(Pipeline, SyncsThatAPipelineCannotHaveAreRefused) {
  for (const char* sync : {"local_sgd", "diloco", "easgd", "gossip"})
    EXPECT_THAT(refused({"parallel.pipeline=2", std::string("parallel.sync=") + sync}, "4"),
                AllOf(HasSubstr(sync), HasSubstr("cannot be combined with parallel.pipeline = 2"),
                      HasSubstr("Use plain, zero1, zero2, zero3 or hybrid")));
}

// Sixteen layers of 256: ZeRO-1 saves more than the prediction's tolerance.
TEST_F(Pipeline, MemoryBeyondTheLimitIsRefusedWithWhatWouldFit) {
  const Words wide = {"parallel.pipeline=2", "model.layers=16", "model.heads=4", "model.width=256"};
  const auto predicted = [&](const char* sync) {
    Words values = wide;
    values.push_back(std::string("parallel.sync=") + sync);
    const CommandResult plan = run_command(with(values, "4", "plan", {"--json"}));
    EXPECT_EQ(plan.code, 0) << plan.err;
    return Json::parse(plan.out).at("predicted_memory_bytes").get<std::int64_t>();
  };
  const std::int64_t plain = predicted("plain"), zero1 = predicted("zero1");
  ASSERT_GT(plain, zero1 + 5'000'000);
  Words limited = wide;
  limited.push_back("memory.limit=" + std::to_string((plain + zero1) / 2));
  const CommandResult result = train(limited, "4");
  EXPECT_EQ(result.code, 2) << result.out;
  EXPECT_THAT(result.err, AllOf(HasSubstr("a rank is predicted to take"),
                                HasSubstr(" more than memory.limit ("), HasSubstr("--fit")));
  EXPECT_THAT(
      result.out,
      AllOf(HasSubstr("What fits (memory.limit):"), ContainsRegex("\n  plain +1 .* no\n"),
            ContainsRegex("\n  zero1 +1 .* yes\n"), ContainsRegex("\n  zero3 +1 .* yes\n")));
  EXPECT_FALSE(fs::exists(folder_.file("runs")));
}

// The measured blocks of a model are a graph that `show partition` cuts and draws.
TEST_F(Pipeline, AModelsMeasuredBlocksAreAGraph) {
  const CommandResult plan = run_command({"plan", tiny_, "--graph", "tiny.txt"});
  ASSERT_EQ(plan.code, 0) << plan.err;
  const std::string graph = read_file(folder_.file("tiny.txt"));
  // The head's table is the embedding's. 512 tokens of width 32, fp32; weights, a sum, two moments.
  EXPECT_THAT(graph, AllOf(ContainsRegex("node embed [0-9.e-]+ms [0-9]+ [0-9]+\n"),
                           ContainsRegex("node layer.1 [0-9.]+ms [0-9]+ [1-9][0-9]+\n"),
                           HasSubstr("value embed 4096 layer.0\n"),
                           HasSubstr("value layer.1 4096 head\n")));
  const CommandResult cut = run_command(
      {"show", "partition", "tiny.txt", "--stages", "2", "--schedule", "1f1b", "--json"});
  ASSERT_EQ(cut.code, 0) << cut.err;
  std::istringstream lines(cut.out);
  std::size_t nodes = 0;
  for (std::string line; std::getline(lines, line);)
    if (const Json event = Json::parse(line); event.at("event") == "stage")
      nodes += event.at("nodes").size();
  EXPECT_EQ(nodes, 4u);
  const CommandResult drawn = run_command(
      {"show", "partition", "tiny.txt", "--stages", "4", "--memory", "250kB", "--svg", "tiny.svg"});
  EXPECT_EQ(drawn.code, 0) << drawn.err;
  EXPECT_THAT(read_file(folder_.file("tiny.svg")),
              AllOf(ContainsRegex("layer.0 alone takes [0-9]+ kB of 250 kB"), HasSubstr("#d62728"),
                    HasSubstr("</svg>")));
}

class Stumbling : public Pipeline {
 protected:
  CommandResult stumble(const std::string& how, const std::string& transport) const {
    const std::string config = folder_.write(
        "stumbling.toml", "[model]\nname = \"stumbling\"\nhow = \"" + how +
                              "\"\n[data]\npath = \"data.txt\"\n[batch]\nglobal = 8\nmicro = 2\n"
                              "[train]\nsteps = 3\nwarmup = 0\nvalidate_sequences = 4\n"
                              "sample_bytes = 0\n[parallel]\npipeline = 4\n");
    return cached_command({OWN_TRAINER, "train", config, "--ranks", "4", "--out", how + transport,
                           "--transport", transport})
        .in(folder_.path())
        .run(90);
  }
};

// Its input was received, its output not sent: three ranks wait for it, directly or not.
TEST_F(Stumbling, ARankKilledBetweenReceiveAndSendEndsTheJobAtOnce) {
  EXPECT_EQ(stumble("nothing", "shm").code, 0);
  for (const char* transport : {"shm", "tcp"}) {
    const CommandResult result = stumble("killed", transport);
    EXPECT_EQ(result.code, 128 + SIGKILL) << result.out << result.err;
    EXPECT_LT(result.seconds, 20) << "the timeout is 30 s";
    EXPECT_EQ(result.left_behind, 0);
    EXPECT_THAT(result.err, HasSubstr("rank 2")) << transport;
  }
}

TEST_F(Stumbling, AnotherShapeInStepTwoIsRefusedWithBothShapes) {
  const CommandResult result = stumble("reshapes", "shm");
  EXPECT_EQ(result.code, 2) << result.out << result.err;
  EXPECT_EQ(result.left_behind, 0);
  EXPECT_THAT(result.err,
              AllOf(HasSubstr("stage 2 gives \"stumbles\" as F32 [2, 64, 4]"),
                    HasSubstr("the agreed layout is F32 [2, 64, 8]"), HasSubstr("rank 2")));
}

}  // namespace
}  // namespace trireme::testing
