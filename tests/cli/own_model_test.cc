// An App: a user's own model has every feature of the built-in ones.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "tests/cli/command.h"

namespace trireme::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using Json = nlohmann::json;

class OwnModel : public ::testing::Test {
 protected:
  OwnModel() {
    std::string text;
    for (int i = 0; i < 400; ++i) text += "line " + std::to_string(i % 7) + " of the text\n";
    folder_.write("text.txt", text);
    config_ = folder_.write("mine.toml",
                            "[model]\nname = \"bigram\"\nwidth = 8\n"
                            "[data]\npath = \"text.txt\"\n"
                            "[batch]\nglobal = 8\nmicro = 2\n"
                            "[train]\nsteps = 12\nwarmup = 2\nlearning_rate = 0.05\n"
                            "validate_sequences = 4\nsample_bytes = 8\n"
                            "[checkpoint]\nevery = 6\n");
  }
  CommandResult own(std::vector<std::string> arguments) const {
    arguments.insert(arguments.begin(), OWN_TRAINER);
    return cached_command(arguments).in(folder_.path()).run();
  }
  CommandResult train(const std::string& out, std::vector<std::string> more = {}) const {
    more.insert(more.begin(), {"train", config_, "--out", out});
    const CommandResult result = own(more);
    EXPECT_EQ(result.code, 0) << result.out << result.err;
    return result;
  }
  std::string hash(const std::string& run) const { return hash_of_run(folder_.file(run)); }
  std::string refused(std::vector<std::string> arguments) const {
    const CommandResult result = own(std::move(arguments));
    EXPECT_EQ(result.code, 2) << result.out << result.err;
    EXPECT_EQ(std::count(result.err.begin(), result.err.end(), '\n'), 1) << result.err;
    return result.err;
  }

  Folder folder_;
  std::string config_;
};

TEST_F(OwnModel, SameWeightsOnAnyLayout) {
  train("one");
  train("two", {"--ranks", "2"});
  train("zero", {"--ranks", "2", "--set", "parallel.sync=zero3"});
  train("sim", {"--ranks", "3", "--transport", "sim"});
  for (const char* run : {"two", "zero", "sim"}) EXPECT_EQ(hash(run), hash("one")) << run;
}

TEST_F(OwnModel, ResumesEvaluatesAndGenerates) {
  train("whole", {"--ranks", "2"});
  std::filesystem::copy(folder_.file("whole"), folder_.file("part"),
                        std::filesystem::copy_options::recursive);
  std::filesystem::remove_all(folder_.file("part/checkpoint/step-00000012"));
  folder_.write("part/checkpoint/latest", "step-00000006\n");
  const CommandResult resumed = own({"train", "--resume", "part", "--ranks", "3"});
  EXPECT_EQ(resumed.code, 0) << resumed.out << resumed.err;
  EXPECT_THAT(resumed.out,
              AllOf(HasSubstr("continuing after step 6"), HasSubstr("the model writes")));
  EXPECT_EQ(hash("part"), hash("whole"));
  const CommandResult eval = own({"eval", "part", "--json"});
  EXPECT_EQ(eval.code, 0) << eval.err;
  EXPECT_THAT(read_file(folder_.file("whole/events.jsonl")),
              HasSubstr("\"loss\":" + Json::parse(eval.out).at("loss").dump()));
  const CommandResult text = own({"generate", "part", "--prompt", "li", "--bytes", "5"});
  EXPECT_EQ(text.code, 0) << text.err;
  EXPECT_THAT(text.out, HasSubstr("li"));
}

TEST_F(OwnModel, PlansWithoutAFormula) {
  const CommandResult plan = own({"plan", config_, "--json", "--set", "model.tied=true"});
  ASSERT_EQ(plan.code, 0) << plan.err;
  const Json event = Json::parse(plan.out);
  EXPECT_EQ(event.at("parameters"), 256 * 8);  // the tied table once
  // Kept for backward, for 2 x 16 bytes: embedding and activation, logits and their softmax.
  const double tokens = 2 * 16;
  const double least = tokens * 4 * (2 * 8 + 256), most = tokens * 4 * (4 * 8 + 3 * 256) + 4096;
  EXPECT_GE(event.at("predicted_activation_bytes"), least);
  EXPECT_LE(event.at("predicted_activation_bytes"), most);
  EXPECT_THAT(own({"plan", config_}).out,
              AllOf(HasSubstr("Plan for mine on 1 rank"),
                    HasSubstr("bigram, width 8, slope 0.1, tied false, sequences of 16 bytes")));
  EXPECT_FALSE(std::filesystem::exists(folder_.file("runs")));
}

TEST_F(OwnModel, OtherPrecisionsTrainAModelWrittenForFp32) {
  train("single");
  train("bf16", {"--set", "train.precision=bf16", "--ranks", "2"});
  train("fp16", {"--set", "train.precision=fp16", "--ranks", "2"});
  train("fp64", {"--set", "train.precision=fp64", "--ranks", "2"});
  const auto last = [&](const std::string& run) {
    return Json::parse(own({"eval", run, "--json"}).out).at("loss").get<double>();
  };
  EXPECT_NEAR(last("fp64"), last("single"), 1e-4);
  EXPECT_NEAR(last("bf16"), last("single"), 0.05);
  EXPECT_NE(last("bf16"), last("single"));
  EXPECT_NEAR(last("fp16"), last("single"), 0.01);
  EXPECT_NE(last("fp16"), last("single"));
  EXPECT_THAT(own({"inspect", "fp64"}).out, HasSubstr("F64"));
}

TEST_F(OwnModel, HelpListsItsKeysAndSaysItsName) {
  const std::string help = own({"train", "--help-config"}).out;
  EXPECT_THAT(help,
              AllOf(HasSubstr("model.width = 16  (an integer, at least 1, at most 1024)\n"
                              "    channels"),
                    HasSubstr("model.slope = 0.1  (a number)"),
                    HasSubstr("model.tied = false  (true or false)"),
                    HasSubstr("model.name = \"bigram\"  (a text: gpt | "),
                    HasSubstr("bigram | wrong | stumbling | bars-net)"), HasSubstr("train.steps"),
                    HasSubstr("model.name = \"gpt\" has, instead of the others of model")));
  EXPECT_THAT(own({"train", "--help"}).out, HasSubstr("\n  own_trainer train configs/"));
  EXPECT_THAT(own({"--help"}).out, Not(HasSubstr("\n  trireme ")));
}

TEST_F(OwnModel, WrongKeysAreRefusedAsTheProgramsOwn) {
  EXPECT_THAT(refused({"train", config_, "--set", "model.widht=3"}),
              AllOf(HasSubstr("model.width?"), HasSubstr("`own_trainer train --help-config`")));
  EXPECT_THAT(refused({"train", config_, "--set", "model.width=3.5"}), HasSubstr("an integer"));
  EXPECT_THAT(refused({"train", config_, "--set", "model.width=0"}), HasSubstr("at least 1"));
  EXPECT_THAT(refused({"train", config_, "--set", "model.heads=2"}),
              HasSubstr("no key model.heads"));
  EXPECT_THAT(refused({"train", config_, "--set", "model.name=bigramm"}),
              HasSubstr("bigram, wrong, stumbling"));
  const std::string wrong =
      folder_.write("wrong.toml", "[model]\nname = \"bigram\"\ntied = \"yes\"\n");
  EXPECT_THAT(refused({"train", wrong}),
              AllOf(HasSubstr("wrong.toml:3"), HasSubstr("true or false")));
}

TEST_F(OwnModel, AMistakeInTheModelIsNamed) {
  const auto mistake = [&](const std::string& how) {
    return refused({"train", config_, "--set", "model.name=wrong", "--set", "model.how=" + how});
  };
  // The configuration's width belongs to another model.
  EXPECT_THAT(mistake("shape"), HasSubstr("no key model.width"));
  config_ = folder_.write("w.toml", "[model]\nname = \"wrong\"\n[data]\npath = \"text.txt\"\n");
  EXPECT_THAT(mistake("shape"), AllOf(HasSubstr("[4, 64, 100]"), HasSubstr("[4, 64, 256]")));
  EXPECT_THAT(mistake("key"),
              AllOf(HasSubstr("the model wrong"), HasSubstr("\"width\""), HasSubstr("how, block")));
  EXPECT_THAT(mistake("type"), AllOf(HasSubstr("as an integer"), HasSubstr("it is a text")));
}

// The program's own images, with a second field and a loss.
class OwnImages : public OwnModel {
 protected:
  OwnImages() {
    config_ = folder_.write("bars.toml",
                            "[model]\nname = \"bars-net\"\n"
                            "[batch]\nglobal = 8\nmicro = 2\n"
                            "[train]\nsteps = 12\nwarmup = 2\nlearning_rate = 0.05\n"
                            "validate_sequences = 16\n[checkpoint]\nevery = 6\n");
  }
};

TEST_F(OwnImages, SameWeightsOnAnyLayout) {
  const std::string said = train("one").out;
  EXPECT_THAT(said, AllOf(HasSubstr("bars: 48 samples to train on, 20 held out"),
                          HasSubstr("samples/s"), HasSubstr("eval one")));
  train("two", {"--ranks", "2"});
  train("zero", {"--ranks", "2", "--set", "parallel.sync=zero3"});
  train("pipeline", {"--ranks", "2", "--set", "parallel.pipeline=2"});
  train("sim", {"--ranks", "3", "--transport", "sim"});
  for (const char* run : {"two", "zero", "pipeline", "sim"})
    EXPECT_EQ(hash(run), hash("one")) << run;
}

TEST_F(OwnImages, ResumesAndIsEvaluated) {
  train("whole", {"--ranks", "2"});
  std::filesystem::copy(folder_.file("whole"), folder_.file("part"),
                        std::filesystem::copy_options::recursive);
  std::filesystem::remove_all(folder_.file("part/checkpoint/step-00000012"));
  folder_.write("part/checkpoint/latest", "step-00000006\n");
  const CommandResult resumed = own({"train", "--resume", "part", "--ranks", "3"});
  EXPECT_EQ(resumed.code, 0) << resumed.out << resumed.err;
  EXPECT_EQ(hash("part"), hash("whole"));
  const CommandResult eval = own({"eval", "part", "--json"});
  EXPECT_EQ(eval.code, 0) << eval.err;
  const Json event = Json::parse(eval.out);
  EXPECT_EQ(event.at("samples"), 16);
  EXPECT_GE(event.at("accuracy"), 0.5);
  EXPECT_THAT(read_file(folder_.file("whole/events.jsonl")),
              HasSubstr("\"loss\":" + event.at("loss").dump()));
  EXPECT_THAT(refused({"generate", "part"}), HasSubstr("writes no text"));
}

TEST_F(OwnImages, TrainInOtherPrecisions) {
  const auto last = [&](const std::string& precision) {
    train(precision, {"--set", "train.precision=" + precision});
    return Json::parse(own({"eval", precision, "--json"}).out).at("loss").get<double>();
  };
  const double single = last("fp32");
  EXPECT_NEAR(last("fp64"), single, 1e-4);
  EXPECT_NEAR(last("bf16"), single, 0.05);
}

TEST_F(OwnImages, ChooseAmongAllDataAndLosses) {
  train("classes", {"--set", "train.loss=classes"});
  train("squares");
  EXPECT_NE(hash("classes"), hash("squares"));
  // A built-in model on this data.
  const std::vector<std::string> letters = {"--set", "data.name=letters"};
  config_ = folder_.write("gpt.toml",
                          "[model]\nname = \"gpt\"\nlayers = 1\nheads = 1\nwidth = 8\nblock = 16\n"
                          "[batch]\nglobal = 4\nmicro = 2\n[train]\nsteps = 3\nwarmup = 1\n");
  EXPECT_THAT(train("letters", letters).out, HasSubstr("letters: 32 sequences to train on"));
  EXPECT_THAT(refused({"train", config_, "--set", "data.name=bars"}),
              AllOf(HasSubstr("reads \"tokens\""), HasSubstr("images"), HasSubstr("light")));
}

TEST_F(OwnImages, WhatCannotBeIsRefusedBeforeAnythingStarts) {
  const auto set = [&](const std::string& assignment) {
    return refused({"train", config_, "--set", assignment});
  };
  EXPECT_THAT(set("data.name=barz"), HasSubstr("letters"));
  EXPECT_THAT(set("train.loss=square"), HasSubstr("squares"));
  EXPECT_THAT(set("data.side=2"), HasSubstr("at least 3"));
  EXPECT_THAT(set("data.augment=true"), HasSubstr("no key data.augment"));
  EXPECT_THAT(set("data.name=text"), HasSubstr("model.block"));
  EXPECT_THAT(own({"train", "--help-config"}).out,
              AllOf(HasSubstr("data.name = \"bars\" has, instead of the others of data"),
                    HasSubstr("data.side = 6"), HasSubstr("data.augment = true")));
  EXPECT_FALSE(std::filesystem::exists(folder_.file("runs")));
}

TEST_F(OwnModel, TheProgramTriremeSaysThatItHasNoSuchModel) {
  train("run");
  const CommandResult result = trireme_command({"eval", "run"}).in(folder_.path()).run();
  EXPECT_EQ(result.code, 2);
  EXPECT_THAT(result.err, AllOf(HasSubstr("\"bigram\""), HasSubstr("gpt")));
}

}  // namespace
}  // namespace trireme::testing
