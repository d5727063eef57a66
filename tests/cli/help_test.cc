// Every command's --help ends with an example that runs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <sstream>

#include "tests/cli/command.h"

namespace trireme::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

// The words of a line; quotes group them.
std::vector<std::string> words_of(const std::string& line) {
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

// The indented lines after "Example:".
std::vector<std::string> examples_of(const std::string& help) {
  const std::string title = "Example:\n";
  std::vector<std::string> lines;
  const auto start = help.find(title);
  if (start == std::string::npos) return lines;
  std::istringstream rest(help.substr(start + title.size()));
  for (std::string line; std::getline(rest, line) && line.starts_with("  ");) lines.push_back(line);
  return lines;
}

TEST(Help, EveryExampleRuns) {
  Folder folder;
  fs::create_directory_symlink(fs::path(TRIREME_SOURCE_DIR) / "configs", folder.file("configs"));
  folder.write("gpt-nano.graph", "node a 1ms 1kB 1kB\nnode b 1ms 1kB 1kB\nvalue a 1kB b\n");
  folder.write("program", "#!/bin/sh\necho \"$TRIREME_ROLE\"\n");
  fs::permissions(folder.file("program"), fs::perms::owner_all);
  // `train` comes first, because its example makes the run that the others use.
  for (const std::string command :
       {"train", "plan", "generate", "eval", "inspect", "doctor", "show", "show gossip",
        "show partition", "show schedule", "show strategies", "show tree-sum", "verify", "bench",
        "launch", "compare", "completion"}) {
    const CommandResult help = trireme_command(words_of(command + " --help")).run();
    EXPECT_EQ(help.code, 0) << help.err;
    const std::vector<std::string> examples = examples_of(help.out);
    EXPECT_FALSE(examples.empty()) << command << " has no example:\n" << help.out;
    for (const std::string& example : examples) {
      EXPECT_TRUE(example.starts_with("  trireme " + command)) << example;
      std::vector<std::string> words = words_of(example);
      words.erase(words.begin());
      const CommandResult result = trireme_command(words).in(folder.path()).run(150);
      EXPECT_EQ(result.code, 0) << example << "\n" << result.out << result.err;
      EXPECT_EQ(result.left_behind, 0) << example;
    }
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
