// User errors: the exit code, one clear sentence, nothing started, nothing overwritten.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

#include "tests/cli/command.h"

namespace trireme::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class BadInput : public ::testing::Test {
 protected:
  // Runs `train` on two ranks in the folder; it must be refused before any file is made.
  std::string refused(std::vector<std::string> arguments, int code = 2) {
    const auto before = names();
    arguments.insert(arguments.begin(), "train");
    if (std::find(arguments.begin(), arguments.end(), "--ranks") == arguments.end()) {
      arguments.insert(arguments.end(), {"--ranks", "2"});
    }
    const CommandResult result = trireme_command(arguments).in(folder_.path()).run();
    EXPECT_EQ(result.code, code) << result.out << result.err;
    EXPECT_EQ(result.out, "");
    EXPECT_EQ(std::count(result.err.begin(), result.err.end(), '\n'), 1) << result.err;
    EXPECT_EQ(result.left_behind, 0);
    EXPECT_EQ(names(), before) << "something was made or removed";
    return result.err;
  }
  std::vector<std::string> names() const {
    std::vector<std::string> out;
    for (const auto& entry : fs::recursive_directory_iterator(folder_.path())) {
      out.push_back(entry.path().string() + " " +
                    (entry.is_regular_file()
                         ? std::to_string(fs::hash_value(entry.path()) + entry.file_size())
                         : ""));
    }
    std::sort(out.begin(), out.end());
    return out;
  }

  Folder folder_;
  const std::string tiny_ = tiny_config(folder_);
};

TEST_F(BadInput, UnknownKeyNamesFileLineAndNearest) {
  const std::string config = folder_.write("bad.toml", "[train]\nsteps = 3\nlerning_rate = 1.0\n");
  EXPECT_THAT(refused({config}), AllOf(HasSubstr("bad.toml:3"), HasSubstr("train.lerning_rate"),
                                       HasSubstr("train.learning_rate?")));
  EXPECT_THAT(refused({tiny_, "--set", "train.stepps=3"}),
              AllOf(HasSubstr("--set"), HasSubstr("train.steps?")));
}

TEST_F(BadInput, WrongTypeAndBrokenToml) {
  const std::string config = folder_.write("bad.toml", "[train]\nsteps = \"many\"\n");
  EXPECT_THAT(refused({config}), AllOf(HasSubstr("bad.toml:2"), HasSubstr("an integer")));
  EXPECT_THAT(refused({folder_.write("torn.toml", "[train\nsteps = 3\n")}),
              HasSubstr("torn.toml:1"));
  EXPECT_THAT(refused({tiny_, "--algorithm", "magic"}), HasSubstr("auto, direct, naive, ring"));
}

// It says nothing, so every value is the default.
TEST_F(BadInput, AnEmptyConfigurationHasDefaults) {
  EXPECT_THAT(refused({folder_.write("empty.toml", ""), "--data", "nowhere.txt"}),
              AllOf(HasSubstr("nowhere.txt"), Not(HasSubstr("empty.toml"))));
  EXPECT_THAT(refused({"nowhere.toml"}), HasSubstr("nowhere.toml: No such file"));
}

TEST_F(BadInput, AnUnknownKeyInTheEnvironment) {
  for (const char* command : {"train", "plan"}) {
    const CommandResult result =
        trireme_command({command, tiny_}).in(folder_.path()).with("TRIREME_TRAIN_STEP", "3").run();
    EXPECT_EQ(result.code, 2) << result.out;
    EXPECT_THAT(result.err, AllOf(HasSubstr("TRIREME_TRAIN_STEP"), HasSubstr("train.steps?")));
  }
}

// Each dotted part, bracket and brace takes a level of the parser's stack.
TEST_F(BadInput, TomlThatIsNestedDeeply) {
  for (const std::string& part : {std::string("["), std::string("{a="), std::string("a.")}) {
    std::string text = "[train]\nsteps = 3\n";
    if (part != "a.") text += "x = ";
    for (int i = 0; i < 50'000; ++i) text += part;
    EXPECT_THAT(refused({folder_.write("deep.toml", text + "a = 1\n")}),
                AllOf(HasSubstr("deep.toml:3"), HasSubstr("more than 100 deep")));
  }
}

// Errors that ranks would only find after they have started and claimed a folder.
TEST_F(BadInput, WhatRanksWouldRefuseIsRefusedBeforeTheyStart) {
  using Words = std::vector<std::string>;
  const std::vector<std::pair<Words, const char*>> all = {
      {{"parallel.tensor=2", "model.heads=1"}, "1 attention heads on 2 tensor-parallel ranks"},
      {{"parallel.context=2", "model.block=6"}, "6 / 4 chunks leaves 2"},
      {{"parallel.sync=zero1", "comm.compression=bf16"}, "parts of gradients are not compressed"},
      {{"parallel.sync=zero2", "parallel.overlap=false"}, "whose memory depends on it"},
      {{"parallel.sync=local_sgd", "train.ema=0.9"}, "train.ema, train.skip_outliers"},
      {{"parallel.tensor=2", "optimizer.name=lamb"},
       "lamb cannot be combined with parallel.tensor"},
      {{"parallel.sync=server", "optimizer.name=adafactor"}, "of which a server has a part"},
      {{"parallel.sequence=true"},
       "parallel.sequence = true cannot be combined with parallel.tensor = 1"},
      {{"parallel.shard=2"},
       "parallel.shard = 2 cannot be combined with parallel.sync = \"plain\""},
      {{"parallel.chunks=2"}, "parallel.chunks = 2 cannot be combined with parallel.pipeline = 1"},
      {{"model.experts=1"}, "a token cannot go to 2 of 1 expert"},
      {{"model.top_k=1"}, "model.top_k = 1 cannot be combined with model.experts = 0"},
      {{"model.balance=0.1"}, "model.balance = 0.1 cannot be combined with model.experts = 0"},
      {{"optimizer.groups=match=nothing weight_decay=0"}, "no parameter's name matches"},
      {{"memory.offload=/no/such/folder"}, "there is no such folder"},
      {{"memory.offload_activations=/no/such/folder"}, "there is no such folder"},
      {{"comm.algorithm=nccl-native"}, "nccl-native needs transport nccl"},
      {{"comm.algorithm=direct", "comm.transport=tcp"}, "transport tcp cannot map it"},
      {{"comm.algorithm=direct", "comm.transport=sim"}, "transport sim cannot map it"},
      {{"comm.transport=mpi"}, "transport mpi needs ranks that mpirun started"},
      {{"comm.interface=no-such-one"}, "no-such-one"}};
  for (const auto& [set, said] : all) {
    Words words = {tiny_, "--out", "run"};
    for (const std::string& one : set) words.insert(words.end(), {"--set", one});
    EXPECT_THAT(refused(words), HasSubstr(said));
  }
}

TEST_F(BadInput, MissingConfiguration) {
  EXPECT_THAT(refused({}), HasSubstr("configs/gpt-nano.toml"));
  EXPECT_THAT(refused({"nowhere.toml"}), HasSubstr("nowhere.toml"));
}

TEST_F(BadInput, MissingEmptyOrShortData) {
  EXPECT_THAT(refused({tiny_, "--data", "nowhere.txt"}), HasSubstr("nowhere.txt"));
  EXPECT_THAT(refused({tiny_, "--data", folder_.write("empty.txt", "")}), HasSubstr("empty"));
  EXPECT_THAT(refused({tiny_, "--data", folder_.write("short.txt", "0123456789")}),
              HasSubstr("short"));
}

TEST_F(BadInput, MicroBatchThatDoesNotDivideShowsTheArithmetic) {
  EXPECT_THAT(refused({tiny_, "--set", "batch.micro=3"}), HasSubstr("8 = 2 x 3 + 2"));
}

TEST_F(BadInput, MoreRanksThanMicroBatches) {
  EXPECT_THAT(refused({tiny_, "--ranks", "5"}), HasSubstr("8 / batch.micro 2 = 4"));
  EXPECT_THAT(refused({tiny_, "--ranks", "0"}), HasSubstr("at least 1"));
}

TEST_F(BadInput, ADeviceThatIsNotThere) {
  EXPECT_THAT(refused({tiny_, "--set", "train.device=cuda"}),
              HasSubstr("train.device = \"cuda\": "));
  EXPECT_THAT(
      refused({tiny_, "--set", "train.loss_scale=256"}),
      HasSubstr("train.loss_scale = \"256\" cannot be combined with train.precision = \"fp32\""));
  EXPECT_THAT(refused({tiny_, "--set", "train.precision=fp16", "--set", "train.loss_scale=100"}),
              HasSubstr("train.loss_scale = 100 is not a power of two"));
  EXPECT_THAT(refused({tiny_, "--set", "train.device=tpu"}), HasSubstr("train.device"));
}

TEST_F(BadInput, MoreElasticRanksThanTheJobHas) {
  EXPECT_THAT(refused({tiny_, "--ranks", "2", "--set", "elastic.min=3"}),
              AllOf(HasSubstr("elastic.min = 3, but the job has 2 ranks"), HasSubstr("--ranks")));
}

TEST_F(BadInput, OutFolderThatHoldsARun) {
  fs::create_directory(folder_.file("run"));
  folder_.write("run/config.toml", "# a run\n");
  EXPECT_THAT(refused({tiny_, "--out", "run"}),
              AllOf(HasSubstr("already holds a run"), HasSubstr("--resume auto --out run")));
}

TEST_F(BadInput, ResumeWithoutAPlaceToResumeFrom) {
  EXPECT_THAT(refused({tiny_, "--resume", "auto"}), HasSubstr("--out"));
  EXPECT_THAT(refused({"--resume", "nowhere"}), HasSubstr("nowhere"));
  fs::create_directory(folder_.file("run"));
  folder_.write("run/config.toml", "# a run\n");
  EXPECT_THAT(refused({"--resume", "run"}), HasSubstr("no checkpoint"));
}

TEST_F(BadInput, WrongUsage) {
  for (const std::vector<std::string>& arguments :
       {std::vector<std::string>{"trane"}, {"train", "--rank", "2"}, {"inspect"}}) {
    const CommandResult result = trireme_command(arguments).in(folder_.path()).run();
    EXPECT_EQ(result.code, 2) << result.err;
    EXPECT_THAT(result.err, HasSubstr("--help"));
    EXPECT_EQ(std::count(result.err.begin(), result.err.end(), '\n'), 1) << result.err;
  }
}

// Numbers too large for any run to finish.
TEST_F(BadInput, NumbersWithoutEnd) {
  using Words = std::vector<std::string>;
  const std::string bytes = "1000000000000000000000";
  std::string schedule = "0:";
  for (int stage = 0; stage <= 100; ++stage) schedule += " F" + std::to_string(stage) + ".9999";
  folder_.write("large.txt", schedule + "\n");
  const std::vector<std::pair<Words, const char*>> all = {
      {{"show", "schedule", "1f1b", "--times", "1e308,1,1"}, "from 0 to 1e12"},
      {{"show", "all-reduce", "ring", "--bytes", bytes}, "not a size up to 1e15"},
      {{"generate", "run", "--bytes", bytes}, "--bytes"},
      {{"bench", "comm", "--sizes", bytes}, "not a size up to 1e15"},
      {{"bench", "comm", "--seconds", "1e308"}, "--seconds"},
      {{"show", "schedule", "1f1b", "--stages", "0"}, "--stages: 0 is out of range"},
      {{"show", "schedule", "1f1b", "--stages", "100000"}, "it must be from 1 to 1,000"},
      {{"show", "schedule", "gpipe", "--microbatches", "250001"},
       "4 stages and 250,001 micro-batches are too many to draw"},
      {{"show", "schedule", "large.txt"},
       "101 stages and 10,000 micro-batches are too many to draw"},
      {{"bench", "server", "--measured", "a.jsonl", "--bytes", "1KiB"},
       "--measured cannot be combined with"},
      {{"train", "any.toml", "--ranks", "two"}, "--ranks: \"two\" is not a whole number. "},
      {{"launch", "-n", "2", "--"}, "no program was given"},
      {{"launch", "-n", "0", "--", "true"}, "0 is out of range: it must be from 1 to 65,536"},
      {{"verify", "all-reduce", "--seeds", "-1"},
       "-1 is out of range: it must be from 0 to 1,000,000"}};
  for (const auto& [arguments, said] : all) {
    const CommandResult result = trireme_command(arguments).in(folder_.path()).run();
    EXPECT_EQ(result.code, 2) << result.out << result.err;
    EXPECT_FALSE(result.timed_out);
    EXPECT_THAT(result.err, HasSubstr(said));
    EXPECT_EQ(std::count(result.err.begin(), result.err.end(), '\n'), 1) << result.err;
    EXPECT_LT(result.err.size(), 400u) << result.err;
  }
}

TEST_F(BadInput, OtherCommandsRefuseWhatIsNoRun) {
  for (const char* command : {"generate", "eval", "inspect"}) {
    const CommandResult result = trireme_command({command, "nowhere"}).in(folder_.path()).run();
    EXPECT_EQ(result.code, 2) << command << result.err;
    EXPECT_THAT(result.err, HasSubstr("nowhere"));
  }
}

// Each of the two would train alone, into a folder of its own.
TEST_F(BadInput, LaunchStartsNoTrainings) {
  const CommandResult result =
      trireme_command({"launch", "-n", "2", "--", TRIREME_PROGRAM, "train", tiny_config(folder_)})
          .in(folder_.path())
          .run();
  EXPECT_EQ(result.code, 2) << result.out;
  EXPECT_THAT(result.err, HasSubstr("Start one: trireme train CONFIG --ranks 2."));
  EXPECT_FALSE(fs::exists(folder_.file("runs")));
}

// Else the number would count at the next --resume.
TEST_F(BadInput, NoJobIsResizedThatDoesNotRun) {
  fs::create_directory(folder_.file("run"));
  folder_.write("run/config.toml", "");
  const CommandResult result = trireme_command({"resize", "run", "4"}).in(folder_.path()).run();
  EXPECT_EQ(result.code, 2) << result.out;
  EXPECT_THAT(result.err, HasSubstr("no job trains in run now"));
  EXPECT_FALSE(fs::exists(folder_.file("run/wanted_ranks")));
}

}  // namespace
}  // namespace trireme::testing
