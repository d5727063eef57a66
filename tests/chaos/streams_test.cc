// Standard streams that are closed from the start, or whose reader goes away while the job runs.
#include <gtest/gtest.h>

#include <cstdio>

#include "tests/chaos/shell.h"
#include "trireme/job.h"

namespace trireme {
namespace {

using test::run_shell;
using test::ShellRun;

constexpr const char* kNobodyReads = "nobody reads standard output any more";

// Prints to both streams in many steps, and creates a file when it has come to the end.
TRIREME_PROCESS(talks) {
  Job job(argc, argv);
  std::vector<float> x(8, 1.0f);
  for (int step = 0; step < 2000; ++step) {
    all_reduce(job.world(), x, Mean);
    std::printf("step %d of a program that talks much\n", step);
    if (step % 500 == 0) std::fprintf(stderr, "still here\n");
  }
  const std::string path = std::string(std::getenv("ENDS")) + "/" + std::to_string(job.rank());
  FILE* file = std::fopen(path.c_str(), "w");
  return file != nullptr && std::fputs("ended\n", file) >= 0 && std::fclose(file) == 0 ? 0 : 1;
}

// Runs `script` and counts the processes that came to the end.
ShellRun run_talking(const std::string& script) {
  return run_shell("export ENDS=$(mktemp -d); " + script +
                   "; code=$?; echo \"$(ls $ENDS | wc -l) ended\"; rm -r $ENDS; exit $code");
}

// Otherwise a descriptor of the job, such as its secret's, would get the closed stream's number.
TEST(Streams, MayBeClosedFromTheStart) {
  for (const std::string closed :
       {"<&-", ">&-", "2>&-", "<&- >&-", ">&- 2>&-", "<&- 2>&-", "<&- >&- 2>&-"}) {
    ShellRun run = run_talking("launch 2 env TRIREME_TEST_PROCESS=talks $SELF " + closed);
    EXPECT_EQ(run.code, 0) << closed << "\n" << run.describe();
    EXPECT_EQ(run.count("2 ended"), 1) << closed << "\n" << run.describe();
    run = run_talking("body talks " + closed);
    EXPECT_EQ(run.code, 0) << closed << "\n" << run.describe();
    EXPECT_EQ(run.count("1 ended"), 1) << closed << "\n" << run.describe();
  }
}

TEST(Streams, ARankThatFailsIsNamedThoughOutputIsClosed) {
  const ShellRun run = run_shell("launch 2 sh -c 'exit 7' >&- <&-");
  EXPECT_EQ(run.code, 7) << run.describe();
  EXPECT_EQ(run.count("ended with exit code 7"), 1) << run.describe();
}

// `| head -1` closes the pipe: the run continues and reports this once.
TEST(Streams, MayLoseTheirReader) {
  ShellRun run = run_talking(
      "launch 2 env TRIREME_TEST_PROCESS=talks $SELF | head -1; (exit ${PIPESTATUS[0]})");
  EXPECT_EQ(run.code, 0) << run.describe();
  EXPECT_EQ(run.count("2 ended"), 1) << run.describe();
  EXPECT_EQ(run.count(kNobodyReads), 1) << run.describe();
  run = run_talking("body talks | head -1; (exit ${PIPESTATUS[0]})");
  EXPECT_EQ(run.code, 0) << run.describe();
  EXPECT_EQ(run.count("1 ended"), 1) << run.describe();
  EXPECT_EQ(run.count(kNobodyReads), 1) << run.describe();
}

TEST(Streams, MayBothLoseTheirReader) {
  const ShellRun run = run_talking(
      "launch 2 env TRIREME_TEST_PROCESS=talks $SELF 2>&1 | head -1; (exit ${PIPESTATUS[0]})");
  EXPECT_EQ(run.code, 0) << run.describe();
  EXPECT_EQ(run.count("2 ended"), 1) << run.describe();
}

// The ranks' children are programs like any other.
TEST(Streams, TheRanksOwnChildrenEndByAClosedPipe) {
  const ShellRun run = run_shell("launch 1 bash -c 'yes | head -1; echo ${PIPESTATUS[0]}'");
  EXPECT_EQ(run.count("[0] 141"), 1) << run.describe();
}

}  // namespace
}  // namespace trireme
