// Wrong command lines: one sentence, what was perhaps meant, exit code 2, and nothing started. In
// this process, with the commands that need no LibTorch; tests/command runs the real program.
#include "trireme/cli/program.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "trireme/cli/command_list.h"

namespace trireme::cli {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;
using Words = std::vector<std::string>;

struct Said {
  int code = 0;
  std::string out, err;
};

Said run(Words words) {
  words.insert(words.begin(), "trireme");
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  Program program(static_cast<int>(words.size()), argv.data(), "trireme", "A test.",
                  "Start here:\n  trireme show all-reduce ring --ranks 4");
  add_commands(program, listed_commands());
  ::testing::internal::CaptureStdout();
  ::testing::internal::CaptureStderr();
  Said said;
  said.code = program.run();
  said.out = ::testing::internal::GetCapturedStdout();
  said.err = ::testing::internal::GetCapturedStderr();
  return said;
}

std::string refused(const Words& words) {
  const Said said = run(words);
  EXPECT_EQ(said.code, 2) << said.err;
  EXPECT_EQ(said.out, "");
  EXPECT_EQ(std::count(said.err.begin(), said.err.end(), '\n'), 1) << said.err;
  EXPECT_THAT(said.err, StartsWith("error: "));
  return said.err;
}

TEST(Usage, NamesTheNearestCommand) {
  EXPECT_THAT(refused({"lanch", "-n", "2", "--", "true"}),
              HasSubstr("trireme has no command lanch; did you mean launch? "));
  EXPECT_THAT(refused({"bench", "scael"}),
              HasSubstr("bench has no command scael; did you mean scale?"));
  EXPECT_THAT(refused({"xyzzy"}),
              AllOf(HasSubstr("no command xyzzy"), HasSubstr("`trireme --help`"),
                    Not(HasSubstr("did you mean"))));
}

TEST(Usage, NamesTheNearestOption) {
  EXPECT_THAT(refused({"verify", "all-reduce", "--seed", "3"}),
              HasSubstr("trireme verify has no option --seed; did you mean --seeds?"));
  EXPECT_THAT(refused({"bench", "comm", "--algoritm=ring"}),
              HasSubstr("did you mean --algorithm?"));
  EXPECT_THAT(refused({"compare", "--frobnicate"}), HasSubstr("has no option --frobnicate. "));
  EXPECT_THAT(refused({"verify", "all-reduce", "ring", "more"}),
              HasSubstr("verify does not take more"));
}

TEST(Usage, ListsTheCommandsWhenNoneIsNamed) {
  const Said alone = run({});
  EXPECT_EQ(std::pair(alone.code, alone.out), std::pair(2, std::string()));
  for (const char* words : {"trireme show ", "trireme launch ", "Start N ranks",
                            "trireme COMMAND --help", "Start here:"})
    EXPECT_THAT(alone.err, HasSubstr(words));
  EXPECT_LT(std::count(alone.err.begin(), alone.err.end(), '\n'), 30);
  const Said below = run({"bench"});
  EXPECT_EQ(below.code, 2);
  EXPECT_THAT(below.err, HasSubstr("trireme bench scale"));
}

TEST(Usage, KnowsCommandsThatThisProgramLacks) {
  for (const Words& more : {Words{}, Words{"--help"}, Words{"a", "--to", "b"}}) {
    for (const auto& [command, why] :
         {std::pair<Words, std::string>{{"tokenize"}, "tokenize is not in this version"},
          {{"train"}, "train is not in a trireme that was built without LibTorch"},
          {{"show", "zero3"}, "show zero3 is not in a trireme that was built without LibTorch"}}) {
      Words words = command;
      words.insert(words.end(), more.begin(), more.end());
      EXPECT_THAT(refused(words), HasSubstr(why));
    }
  }
  for (const char* hidden : {"tokenize", "train", "zero3"})
    EXPECT_THAT(run({"--help"}).out + run({"show", "--help"}).out,
                Not(HasSubstr(std::string("\n  ") + hidden)));
}

TEST(Usage, TakesHelpAsAWord) {
  EXPECT_EQ(run({"help"}).out, run({"--help"}).out);
  EXPECT_EQ(run({"help", "bench", "comm"}).out, run({"bench", "comm", "--help"}).out);
  EXPECT_THAT(refused({"help", "xyzzy"}), HasSubstr("trireme has no command xyzzy"));
}

// Dashes are alike in all options.
TEST(Usage, NamesNoOptionThatIsNotNear) {
  EXPECT_THAT(refused({"inspect", "run", "--step", "3"}),
              AllOf(HasSubstr("inspect has no option --step"), Not(HasSubstr("did you mean"))));
}

// A file of weights may be anybody's.
TEST(Output, NamesOfTensorsDoNotControlTheTerminal) {
  const std::string path = ::testing::TempDir() + "/names.safetensors";
  std::string header = R"({"w\u001b[2J\n":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})";
  header.resize((header.size() + 7) / 8 * 8, ' ');
  std::ofstream(path, std::ios::binary)
      << static_cast<char>(header.size()) << std::string(7, '\0') << header << std::string(4, '\0');
  const Said table = run({"inspect", path});
  EXPECT_EQ(table.code, 0) << table.err;
  EXPECT_THAT(table.out, HasSubstr("w\\x1b[2J\\x0a "));
  EXPECT_THAT(run({"inspect", path, "--json"}).out, HasSubstr(R"("name":"w\u001b[2J\n")"));
}

// With fewer runs than rank counts, it said that the others sent nothing.
TEST(Output, WhatWasNotRunHasNotSentNothing) {
  const Words words{"verify", "all-reduce", "ring", "--ranks", "2..3", "--seeds", "1"};
  const std::string table = run(words).out;
  EXPECT_THAT(table, HasSubstr("    2       2 1.00 S     1  "));
  EXPECT_THAT(table, HasSubstr("    3       4      -     0  "));
  Words json = words;
  json.emplace_back("--json");
  EXPECT_THAT(run(json).out, HasSubstr(R"({"ranks":3,"rounds":4}])"));
}

TEST(Output, ThatCannotBeWrittenIsAnError) {
  std::fflush(stdout);
  const int before = dup(STDOUT_FILENO), full = open("/dev/full", O_WRONLY | O_CLOEXEC);
  ASSERT_GE(full, 0);
  std::vector<std::string> words = {"trireme", "show", "all-reduce", "ring", "--ranks", "4"};
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  Program program(static_cast<int>(words.size()), argv.data(), "trireme", "A test.", "");
  add_commands(program, listed_commands());
  ::testing::internal::CaptureStderr();
  dup2(full, STDOUT_FILENO);
  const int code = program.run();
  std::clearerr(stdout);
  dup2(before, STDOUT_FILENO);
  for (const int descriptor : {before, full}) close(descriptor);
  EXPECT_EQ(code, 170);
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              HasSubstr("writing to standard output failed"));
}

TEST(Usage, ChecksRanges) {
  for (const auto& [words, text] : std::vector<std::pair<Words, const char*>>{
           {{"verify", "all-reduce", "--seeds", "-1"}, "--seeds: -1 is out of range"},
           {{"verify", "all-reduce", "--hosts", "0"}, "at least 1"},
           {{"show", "all-reduce", "ring", "--root", "-1"}, "at least 0"},
           {{"show", "gossip", "ring", "--rounds", "-1"}, "at least 0"},
           {{"bench", "comm", "--ranks", "5000"}, "from 1 to 4,096"},
           {{"bench", "comm", "--seconds", "nan"}, "from 1e-06 to 3,600"},
           {{"launch", "-n", "0", "--", "true"},
            "--ranks: 0 is out of range: it must be from 1 to 65,536"},
           {{"launch", "-n", "2", "--only-rank", "2", "--", "true"},
            "--only-rank 2, but there are 2 ranks"},
           {{"launch", "-n", "2", "--only-rank", "-3", "--", "true"}, "at least 0"},
           {{"launch", "-n", "2", "--bind", "cor", "--", "true"}, "did you mean core?"}})
    EXPECT_THAT(refused(words), HasSubstr(text));
}

TEST(Usage, ABatchScriptLeavesNoOptionOut) {
  for (const Words& more : {Words{"--store", "here"},
                            {"--restarts", "3"},
                            {"--log-dir", "logs"},
                            {"--only-rank", "0"},
                            {"--bind", "numa"},
                            {"--export", "HOME"},
                            {"--host-timeout", "9"},
                            {"--servers", "1"},
                            {"--elastic", "1:2"},
                            {"--", "true"}}) {
    Words words{"launch", "-n", "2", "--print-sbatch", "no.toml"};
    words.insert(words.end(), more.begin(), more.end());
    EXPECT_THAT(refused(words), HasSubstr("--print-sbatch cannot be combined with " +
                                          (more[0] == "--" ? std::string("PROGRAM") : more[0])));
  }
}

// Each of these was once accepted and had no effect.
TEST(Usage, RefusesOptionsWithoutEffect) {
  for (const auto& [words, text] : std::vector<std::pair<Words, const char*>>{
           {{"show", "--json"}, "--json is for one algorithm, and none is named"},
           {{"show", "all-reduce", "--svg", "a.svg"}, "leave --svg out to list them"},
           {{"show", "gossip", "--html", "a.html"}, "--html is for one graph"},
           {{"show", "schedule", "--step"}, "--step is for one schedule"},
           {{"show", "strategies", "--json"}, "--json is for one strategy"},
           {{"show", "schedule", "--recorded", "run.jsonl", "--times", "1,1,1"},
            "--times cannot be combined with --recorded"},
           {{"show", "partition", "graph.txt", "--microbatches", "4"},
            "--microbatches requires --schedule"},
           {{"inspect", "run", "--hash", "--part", "train"}, "--hash is over all weights"},
           {{"bench", "comm", "--tune", "--explain"}, "--tune cannot be combined with --explain"},
           {{"bench", "comm", "broadcast", "--tune"}, "--tune cannot be combined with COLLECTIVE"},
           {{"bench", "comm", "--tune", "--sizes", "8B"}, "--tune cannot be combined with --sizes"},
           {{"bench", "comm", "broadcast", "--explain"}, "--explain is about all-reduce"},
           {{"bench", "comm", "--explain", "--algorithm", "ring"}, "what auto takes, not ring"}})
    EXPECT_THAT(refused(words), HasSubstr(text));
}

TEST(Usage, ReadsDecimalNumbers) {
  EXPECT_EQ(run({"show", "all-reduce", "ring", "--ranks", "010"}).out,
            run({"show", "all-reduce", "ring", "--ranks", "10"}).out);
  for (const auto& [words, text] : std::vector<std::pair<Words, const char*>>{
           {{"show", "all-reduce", "ring", "--ranks", "0x10"}, "\"0x10\" is not a whole number"},
           {{"show", "schedule", "1f1b", "--stages", "3000000000"},
            "3000000000 is out of range: it must be at most 2,147,483,647"},
           {{"show", "schedule", "1f1b", "--stages", "-3000000000"},
            "-3000000000 is out of range: it must be at least -2,147,483,648"},
           {{"verify", "all-reduce", "rng"}, "there is no algorithm \"rng\" for all-reduce. "},
           {{"coordinator", "--patience", "long"}, "--patience: \"long\" is not a number"},
           {{"coordinator", "--silence", "1e10"}, "to 1,000,000,000"}})
    EXPECT_THAT(refused(words), HasSubstr(text));
}

// Longer than a name in a file system may be.
TEST(Usage, ANameThatNoFileCanHaveIsRefused) {
  const std::string name(300, 'a');
  refused({"show", "schedule", name});
  refused({"resize", name, "2"});
}

TEST(Usage, AProgramWithOptionsOfItsOwnNeedsDashes) {
  EXPECT_THAT(refused({"launch", "-n", "2", "b/mnist", "--foo"}),
              HasSubstr("Write -- before the program and its own options: "));
  EXPECT_THAT(refused({"launch", "-n", "2", "b/mnist", "--foo", "3"}),
              HasSubstr(" launch -n 2 -- b/mnist --foo`."));
}

TEST(Usage, AShownDefaultIsTheOptionsOwn) {
  EXPECT_THAT(run({"launch", "--help"}).out, HasSubstr("core | numa | none"));
  EXPECT_THAT(run({"verify", "--help"}).out, HasSubstr("=2..16"));
}

}  // namespace
}  // namespace trireme::cli
