// `trireme bench comm` on GPUs: the driver and NCCL are made up (tests/gpu).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/cli/command.h"

namespace trireme::testing {
namespace {

using ::testing::HasSubstr;

Command bench(std::vector<std::string> more) {
  std::vector<std::string> arguments = {"bench", "comm",      "--transport",
                                        "nccl",  "--seconds", "0.001"};
  arguments.insert(arguments.end(), more.begin(), more.end());
  return trireme_command(arguments)
      .with("TRIREME_CUDA_LIBRARY", TRIREME_FAKE_GPU)
      .with("TRIREME_NCCL_LIBRARY", TRIREME_FAKE_GPU)
      .with("TRIREME_FAKE_GPUS", "2");
}

// One process: the made-up NCCL has no way to others (tests/gpu/collectives_test.cc has several GPUs).
TEST(BenchComm, MeasuresGpusMemory) {
  for (const char* algorithm : {"auto", "nccl-native"}) {
    const CommandResult result =
        bench({"all-reduce", "all-gather", "broadcast", "--algorithm", algorithm, "--sizes", "64B",
               "1MiB", "--ranks", "1", "--json"})
            .run();
    ASSERT_EQ(result.code, 0) << result.out << result.err;
    std::istringstream lines(result.out);
    int figures = 0;
    for (std::string line; std::getline(lines, line); ++figures) {
      const auto one = nlohmann::json::parse(line);
      EXPECT_EQ(one.at("transport"), "nccl");
      EXPECT_EQ(one.at("memory"), "GPU");
      EXPECT_GT(one.at("seconds"), 0.0);
    }
    EXPECT_EQ(figures, 6) << result.out;
  }
}

TEST(BenchComm, RefusesWhatIsNotForGpus) {
  const auto refused = [](const std::vector<std::string>& more, const std::string& part) {
    const CommandResult result = bench(more).run();
    EXPECT_EQ(result.code, 2) << result.out << result.err;
    EXPECT_THAT(result.err, HasSubstr(part));
  };
  refused({"--heap"}, "--heap is for the CPU's memory");
  refused({"--explain"}, "--explain is for the CPU's memory");
  refused({"--tune"}, "--tune is for the CPU's memory");
  refused({"--algorithm", "ring"}, "on GPUs there is no algorithm ring");
  refused({"--ranks", "3"}, "for 2 GPUs (3 > 2)");
}

// Before anything is measured.
TEST(BenchComm, RefusesToTuneIntoAFileThatIsNoTable) {
  const std::string path = ::testing::TempDir() + "/bench_comm_notes.md";
  std::ofstream(path) << "# Notes\n";
  const CommandResult result =
      trireme_command({"bench", "comm", "--tune", "--ranks", "1", "--out", path}).run();
  EXPECT_EQ(result.code, 2) << result.out << result.err;
  EXPECT_THAT(result.err, HasSubstr(path));
  EXPECT_EQ(std::count(result.err.begin(), result.err.end(), '\n'), 1) << result.err;
}

}  // namespace
}  // namespace trireme::testing
