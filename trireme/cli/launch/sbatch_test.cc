// Batch scripts for Slurm. tests/clusters/requeue_test.py runs one.
#include "trireme/cli/launch/sbatch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trireme/base/error.h"

namespace trireme::cli::sbatch_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

SbatchJob job() {
  return {
      .name = "gpt", .command = {"/opt/trireme", "train", "a b's.toml"}, .ranks = 8, .nodes = 2};
}

TEST(Sbatch, TheScriptDividesTheRanksAndQueuesItselfAgain) {
  const std::string text = sbatch_script(job());
  EXPECT_TRUE(text.starts_with("#!/bin/bash\n#SBATCH --job-name=gpt\n"));
  EXPECT_THAT(text, AllOf(HasSubstr("--nodes=2\n"), HasSubstr("--ntasks-per-node=4\n"),
                          HasSubstr("--time=12:00:00\n"), HasSubstr("--signal=USR1@120 --requeue"),
                          HasSubstr("TRIREME_JOB_SECRET_FILE"),
                          HasSubstr("\nsrun /opt/trireme train 'a b'\\''s.toml'\ncode=$?\n"),
                          HasSubstr("-eq 143 ] && scontrol requeue")));
}

TEST(Sbatch, OneNodeNeedsNoSecret) {
  SbatchJob one = job();
  one.nodes = 1;
  EXPECT_THAT(sbatch_script(one),
              AllOf(HasSubstr("--ntasks-per-node=8"), Not(HasSubstr("TRIREME_JOB_SECRET_FILE"))));
}

TEST(Sbatch, WhatIsNoJobIsRefused) {
  SbatchJob odd = job();
  odd.nodes = 3;
  EXPECT_THROW(sbatch_script(odd), ConfigError);
  odd = job();
  odd.name = "a\n#SBATCH --uid=0";
  EXPECT_THROW(sbatch_script(odd), ConfigError);
  odd = job();
  odd.time = "1 h";
  EXPECT_THROW(sbatch_script(odd), ConfigError);
  odd.time = "";
  EXPECT_THROW(sbatch_script(odd), ConfigError);
}

TEST(Sbatch, OnlyTimesOfSlurmAreTaken) {
  SbatchJob one = job();
  for (const char* good :
       {"90", "90:30", "12:00:00", "1-12", "1-12:30", "1-12:30:00", "UNLIMITED"}) {
    one.time = good;
    EXPECT_THAT(sbatch_script(one), HasSubstr("#SBATCH --time=" + one.time + "\n"));
  }
  for (const char* bad : {"foo", "12h", ":30", "12:", "1-", "-1", "1-2-3", "1:2:3:4", "1:2-3"}) {
    one.time = bad;
    EXPECT_THROW(sbatch_script(one), ConfigError) << bad;
  }
}

}  // namespace
}  // namespace trireme::cli::sbatch_test
