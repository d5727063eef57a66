// `mpirun -n N trireme train` is one job of N ranks, with the weights of `trireme train --ranks N`.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <sstream>

#include "tests/cli/command.h"

namespace trireme::testing::mpirun_test {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;

std::vector<std::string> mpis() {
  std::vector<std::string> names;
  std::istringstream list(TRIREME_MPIS);
  for (std::string name; std::getline(list, name, ',');) names.push_back(name);
  return names;
}

class Mpirun : public ::testing::TestWithParam<std::string> {
 protected:
  CommandResult train(int ranks, const std::string& folder, std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), {TRIREME_PROGRAM, "train"});
    return start(arguments, ranks, folder);
  }
  CommandResult start(const std::vector<std::string>& words, int ranks, const std::string& folder) {
    std::vector<std::string> all{"mpirun." + GetParam(), "-n", std::to_string(ranks)};
    if (GetParam() == "openmpi") all.push_back("--oversubscribe");
    all.insert(all.end(), words.begin(), words.end());
    return cached_command(all)
        .in(folder)
        .with("OMPI_ALLOW_RUN_AS_ROOT", "1")
        .with("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1")
        .run(120);
  }
};

// The weights of the newest checkpoint of a run.
std::string weights(const Folder& folder, const std::string& run) {
  for (const auto& entry :
       fs::recursive_directory_iterator(folder.file("runs/" + run + "/checkpoint"))) {
    if (entry.path().filename() == "model.safetensors") return read_file(entry.path().string());
  }
  return "";
}

TEST_P(Mpirun, SaysThatItWaitsForALateProcess) {
  Folder folder;
  const std::string config = tiny_config(folder, "steps = 2\n");
  const std::string late =
      "[ ${OMPI_COMM_WORLD_RANK:-$PMI_RANK} = 0 ] || sleep 3; exec " TRIREME_PROGRAM " train " +
      config;
  const CommandResult result = start({"sh", "-c", late}, 2, folder.path());
  EXPECT_EQ(result.code, 0) << result.out << result.err;
  EXPECT_THAT(result.err,
              HasSubstr("rank 0 waits for other processes of mpirun, in MPI_Init (2 s so far)\n"));
}

TEST_P(Mpirun, TrainsOneJobWithTheSameWeights) {
  Folder folder;
  const std::string config = tiny_config(folder, "steps = 6\n");
  const CommandResult plain =
      trireme_command({"train", config, "--ranks", "4"}).in(folder.path()).run(120);
  ASSERT_EQ(plain.code, 0) << plain.out << plain.err;
  const CommandResult result = train(4, folder.path(), {config});
  ASSERT_EQ(result.code, 0) << result.out << result.err;
  EXPECT_THAT(result.out, AllOf(HasSubstr("Plan for tiny on 4 ranks"), HasSubstr("step 6 of 6"),
                                HasSubstr("the run is in runs/tiny-2")));
  EXPECT_EQ(result.out.find('\r'), std::string::npos) << "Open MPI's terminal is not the user's";
  EXPECT_EQ(result.out.find("Plan for"), result.out.rfind("Plan for")) << "rank 0 alone speaks";
  const std::string expected = weights(folder, "tiny");
  EXPECT_GT(expected.size(), 1000u);
  EXPECT_TRUE(weights(folder, "tiny-2") == expected);
  EXPECT_FALSE(fs::exists(folder.file("runs/tiny-3")));
}

// MPICH's UCX would print what it logs among the program's own lines.
TEST_P(Mpirun, WhatMpiLogsIsNotOnStdout) {
  Folder folder;
  const CommandResult result = start({"env", "UCX_LOG_LEVEL=info", "TRIREME_COMM_TRANSPORT=mpi",
                                      TRIREME_PROGRAM, "train", tiny_config(folder, "steps = 2\n")},
                                     2, folder.path());
  EXPECT_EQ(result.code, 0) << result.out << result.err;
  EXPECT_EQ(result.out.find(" UCX "), std::string::npos) << result.out;
}

TEST_P(Mpirun, RefusesRanksThatContradict) {
  Folder folder;
  const CommandResult result = train(3, folder.path(), {tiny_config(folder), "--ranks", "2"});
  EXPECT_EQ(result.code, 2) << result.out << result.err;
  EXPECT_THAT(result.out + result.err,
              AllOf(HasSubstr("--ranks 2, but mpirun"), HasSubstr("started 3 processes")));
  EXPECT_FALSE(fs::exists(folder.file("runs")));
}

// One rank is told to use fewer instructions: it would compute other bits.
CommandResult train_with_other_instructions(const std::string& mpi,
                                            const std::string& reproducible) {
  Folder folder;
  const std::vector<std::string> train{
      TRIREME_PROGRAM, "train",
      tiny_config(folder, "steps = 2\nreproducible = " + reproducible + "\n")};
  std::vector<std::string> all{"mpirun." + mpi};
  if (mpi == "openmpi") all.push_back("--oversubscribe");
  all.insert(all.end(), {"-n", "1"});
  all.insert(all.end(), train.begin(), train.end());
  all.insert(all.end(), {":", "-n", "1", "env", "ONEDNN_MAX_CPU_ISA=AVX2"});
  all.insert(all.end(), train.begin(), train.end());
  return cached_command(all)
      .in(folder.path())
      .with("OMPI_ALLOW_RUN_AS_ROOT", "1")
      .with("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1")
      .run(120);
}

TEST_P(Mpirun, RefusesARankWithOtherInstructions) {
  const CommandResult result = train_with_other_instructions(GetParam(), "true");
  EXPECT_EQ(result.code, 10) << result.out << result.err;
  EXPECT_THAT(result.out + result.err,
              AllOf(HasSubstr("ONEDNN_MAX_CPU_ISA=AVX2\""), HasSubstr("against \"processor = ")));
}

TEST_P(Mpirun, TakesARankWithOtherInstructionsIfBitsMayDiffer) {
  const CommandResult result = train_with_other_instructions(GetParam(), "false");
  EXPECT_EQ(result.code, 0) << result.out << result.err;
}

TEST_P(Mpirun, ABadConfigurationIsToldOnce) {
  Folder folder;
  const CommandResult result =
      train(2, folder.path(), {tiny_config(folder), "--set", "train.stepps=3"});
  EXPECT_EQ(result.code, 2) << result.out << result.err;
  const std::string text = result.out + result.err;
  EXPECT_THAT(text, HasSubstr("train.steps?"));
  EXPECT_EQ(text.find("train.steps?"), text.rfind("train.steps?")) << text;
}

INSTANTIATE_TEST_SUITE_P(Every, Mpirun, ::testing::ValuesIn(mpis()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace trireme::testing::mpirun_test
