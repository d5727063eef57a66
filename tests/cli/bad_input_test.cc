// What a user can get wrong: exit code, one clear sentence, nothing started, nothing overwritten.
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

class BadInput : public ::testing::Test {
 protected:
  // Runs `train` on two ranks in the folder; it must be refused before anything was made.
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
  EXPECT_THAT(refused({tiny_, "--set", "train.loss_scale=256"}),
              HasSubstr("train.loss_scale = \"256\" with train.precision = \"fp32\""));
  EXPECT_THAT(refused({tiny_, "--set", "train.precision=fp16", "--set", "train.loss_scale=100"}),
              HasSubstr("train.loss_scale = 100 is no power of two"));
  EXPECT_THAT(refused({tiny_, "--set", "train.device=tpu"}), HasSubstr("train.device"));
}

TEST_F(BadInput, OutFolderThatHoldsARun) {
  fs::create_directory(folder_.file("run"));
  folder_.write("run/config.toml", "# a run\n");
  EXPECT_THAT(refused({tiny_, "--out", "run"}),
              AllOf(HasSubstr("already holds a run"), HasSubstr("--resume run")));
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

TEST_F(BadInput, OtherCommandsRefuseWhatIsNoRun) {
  for (const char* command : {"generate", "eval", "inspect"}) {
    const CommandResult result = trireme_command({command, "nowhere"}).in(folder_.path()).run();
    EXPECT_EQ(result.code, 2) << command << result.err;
    EXPECT_THAT(result.err, HasSubstr("nowhere"));
  }
}

}  // namespace
}  // namespace trireme::testing
