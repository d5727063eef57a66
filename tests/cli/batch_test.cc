// A batch script of two tasks is one process that srun has not started. In it, commands that need
// no ranks run, and `--ranks` starts processes on this host. The test sets Slurm's variables
// itself; tests/cli/sbatch runs in a real script if Slurm is installed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>

#include "tests/cli/command.h"

namespace trireme::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

Command in_script(std::vector<std::string> arguments, const Folder& folder) {
  Command command = trireme_command(std::move(arguments)).in(folder.path());
  if (std::getenv("SLURM_JOB_ID")) return command;
  return command.with("SLURM_JOB_ID", "7").with("SLURM_NTASKS", "2").with("SLURM_PROCID", "0");
}

TEST(Batch, CommandsThatNeedNoRanksAndExplicitRanksRun) {
  Folder folder;
  const std::string config = tiny_config(folder, "steps = 4\n");
  for (const char* ranks : {"1", "2"}) {
    const CommandResult trained = in_script({"train", config, "--ranks", ranks}, folder).run(120);
    ASSERT_EQ(trained.code, 0) << trained.out << trained.err;
    EXPECT_THAT(trained.out, HasSubstr("on " + std::string(ranks) + " rank"));
  }
  for (const std::vector<std::string>& words : std::vector<std::vector<std::string>>{
           {"train", "--resume", "runs/tiny-2", "--ranks", "2"},
           {"generate", "runs/tiny", "--bytes", "5"},
           {"eval", "runs/tiny"},
           {"inspect", "runs/tiny"},
           {"bench", "comm", "--sizes", "1KiB", "--seconds", "0.001"},
           {"bench", "comm", "--ranks", "1", "--sizes", "1KiB", "--seconds", "0.001"},
           {"launch", "-n", "2", "--", "true"}}) {
    const CommandResult result = in_script(words, folder).run(120);
    EXPECT_EQ(result.code, 0) << words[0] << ": " << result.out << result.err;
  }
}

TEST(Batch, TrainWithoutRanksSaysHowManyThereAreAndHowToStartThem) {
  Folder folder;
  const CommandResult result = in_script({"train", tiny_config(folder)}, folder).run();
  EXPECT_EQ(result.code, 2) << result.out << result.err;
  EXPECT_THAT(result.err, AllOf(HasSubstr("allocation has 2 tasks"), HasSubstr("srun -n 2"),
                                HasSubstr("train --ranks 2")));
}

// srun does not end the other tasks when one has failed. They would look for rank 0 for half an hour.
TEST(Batch, TheOtherRanksEndWithWhatRankZeroRefuses) {
  Folder folder;
  const auto start = [&](const std::string& rank) {
    return trireme_command({"train", "none.toml"})
        .in(folder.path())
        .with("SLURM_PROCID", rank)
        .with("SLURM_LOCALID", rank)
        .with("SLURM_NTASKS", "2")
        .with("SLURM_JOB_ID", std::to_string(getpid()))
        .with("SLURM_STEP_ID", "0")
        .start();
  };
  auto other = start("1"), first = start("0");
  const CommandResult refused = first.wait_beside_others();
  EXPECT_EQ(refused.code, 2) << refused.out << refused.err;
  EXPECT_THAT(refused.err, HasSubstr("none.toml"));
  EXPECT_EQ(other.wait_beside_others().code, 2);
}

// The environment of two processes of mpirun, srun or torchrun: each runs by itself.
TEST(Batch, CommandsThatNeedNoRanksIgnoreLaunchers) {
  Folder folder;
  const std::string config = tiny_config(folder, "steps = 2\n");
  const CommandResult trained = in_script({"train", config, "--ranks", "1"}, folder).run(120);
  ASSERT_EQ(trained.code, 0) << trained.out << trained.err;
  using Variables = std::vector<std::pair<std::string, std::string>>;
  for (const Variables& variables :
       {Variables{{"OMPI_COMM_WORLD_SIZE", "2"}, {"OMPI_COMM_WORLD_RANK", "1"}},
        Variables{{"PMI_SIZE", "2"}, {"PMI_RANK", "0"}},
        Variables{{"WORLD_SIZE", "2"}, {"RANK", "1"}, {"MASTER_ADDR", "127.0.0.1"}},
        Variables{{"SLURM_STEP_NUM_TASKS", "2"}, {"SLURM_STEP_ID", "0"}, {"SLURM_PROCID", "1"}}}) {
    Command command = in_script({"eval", "runs/tiny", "--json"}, folder);
    for (const auto& [name, value] : variables) command.with(name, value);
    const CommandResult result = command.run();
    EXPECT_EQ(result.code, 0) << variables[0].first << ": " << result.out << result.err;
    EXPECT_THAT(result.out, HasSubstr("validation"));
  }
}

}  // namespace
}  // namespace trireme::testing
