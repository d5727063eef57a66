// Runs whose ranks train their own copies (parallel.sync = local_sgd and its relatives): from the
// start over a checkpoint in the middle of a round to the end.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "tests/cli/command.h"

namespace trireme::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;

class Relatives : public ::testing::TestWithParam<std::string> {
 protected:
  CommandResult trireme(std::vector<std::string> arguments) const {
    return trireme_command(std::move(arguments)).in(folder_.path()).run();
  }
  std::string hash(const std::string& run) const { return hash_of_run(folder_.file(run)); }
  Folder folder_;
};
INSTANTIATE_TEST_SUITE_P(Every, Relatives, ::testing::Values("local_sgd", "diloco"));

// Saved after step 10, in rounds of 4 steps. Resumed on as many ranks it has the bits of an
// uninterrupted run; it can also be resumed on other numbers of ranks.
TEST_P(Relatives, ResumeInTheMiddleOfARoundOnAnyNumberOfRanks) {
  const std::string config = tiny_config(folder_, "steps = 20\nvalidate_every = 7\n");
  const std::string sync = "parallel.sync=" + GetParam();
  const CommandResult whole =
      trireme({"train", config, "--ranks", "2", "--out", "whole", "--set", sync, "--set",
               "parallel.local_steps=4", "--set", "checkpoint.every=10"});
  ASSERT_EQ(whole.code, 0) << whole.out << whole.err;
  EXPECT_THAT(whole.out, AllOf(HasSubstr("one every 4 steps"),
                               HasSubstr("the weights depend on the number of ranks")));
  for (const char* ranks : {"2", "1", "3"}) {
    const std::string run = std::string("part-") + ranks;
    fs::copy(folder_.file("whole"), folder_.file(run), fs::copy_options::recursive);
    fs::remove_all(folder_.file(run + "/checkpoint/step-00000020"));
    std::ofstream(folder_.file(run + "/checkpoint/latest")) << "step-00000010\n";
    const CommandResult resumed = trireme({"train", "--resume", run, "--ranks", ranks});
    EXPECT_EQ(resumed.code, 0) << resumed.out << resumed.err;
    EXPECT_THAT(resumed.out, HasSubstr("continuing after step 10"));
    EXPECT_EQ(hash(run) == hash("whole"), std::string(ranks) == "2") << ranks << " ranks";
  }
  // Resumed with plain it would be another training.
  const CommandResult plain = trireme({"train", "--resume", "whole", "--ranks", "2", "--set",
                                       "parallel.sync=plain", "--set", "train.steps=30"});
  EXPECT_NE(plain.code, 0) << plain.out;
  EXPECT_THAT(plain.err, HasSubstr("parallel.sync")) << plain.err;
}

}  // namespace
}  // namespace trireme::testing
