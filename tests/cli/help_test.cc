// Every command's --help ends with an example that runs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "tests/cli/command.h"

namespace trireme::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

// The words of the line after "Example:", with "trireme" first; quotes group words.
std::vector<std::string> example_of(const std::string& help) {
  const auto start = help.find("Example:\n");
  if (start == std::string::npos) return {};
  const auto begin = start + 9;
  const std::string line = help.substr(begin, help.find('\n', begin) - begin);
  std::vector<std::string> words;
  std::string word;
  bool quoted = false;
  for (const char c : line + " ") {
    if (c == '"') {
      quoted = !quoted;
    } else if (c == ' ' && !quoted) {
      if (!word.empty()) words.push_back(word);
      word.clear();
    } else {
      word += c;
    }
  }
  return words;
}

TEST(Help, EveryExampleRuns) {
  Folder folder;
  fs::create_directory_symlink(fs::path(TRIREME_SOURCE_DIR) / "configs", folder.file("configs"));
  // `train` comes first, because its example makes the run that the others use.
  for (const char* command : {"train", "plan", "generate", "eval", "inspect", "doctor", "show",
                              "verify", "bench", "launch", "compare", "completion"}) {
    const CommandResult help = trireme_command({command, "--help"}).run();
    EXPECT_EQ(help.code, 0) << help.err;
    std::vector<std::string> words = example_of(help.out);
    ASSERT_GE(words.size(), 2u) << command << " has no example:\n" << help.out;
    EXPECT_EQ(words[0], "trireme");
    EXPECT_EQ(words[1], command);
    words.erase(words.begin());
    const CommandResult result = trireme_command(words).in(folder.path()).run(150);
    EXPECT_EQ(result.code, 0) << command << "\n" << result.out << result.err;
    EXPECT_EQ(result.left_behind, 0) << command;
  }
}

TEST(Help, ProgramListsItsCommands) {
  const CommandResult help = trireme_command({"--help"}).run();
  EXPECT_EQ(help.code, 0);
  for (const char* command : {"train", "plan", "generate", "eval", "inspect", "doctor", "show",
                              "verify", "bench", "launch", "compare", "completion"}) {
    EXPECT_THAT(help.out, HasSubstr(std::string("\n  ") + command));
  }
}

TEST(Help, ConfigurationListsEveryKey) {
  const CommandResult help = trireme_command({"train", "--help-config"}).run();
  EXPECT_EQ(help.code, 0);
  for (const char* key : {"model.layers = 4  (an integer", "train.learning_rate", "batch.micro",
                          "comm.algorithm", "timeout.user_code", "checkpoint.keep"}) {
    EXPECT_THAT(help.out, HasSubstr(key));
  }
}

}  // namespace
}  // namespace trireme::testing
