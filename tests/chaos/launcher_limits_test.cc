// The launcher and its ranks if the system refuses threads, memory, descriptors or file sizes: they
// end with a message and the documented exit code, and never by a signal.
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <vector>

#include "tests/chaos/shell.h"
#include "trireme/job.h"

namespace trireme {
namespace {

using test::run_shell;
using test::ShellRun;

TRIREME_PROCESS(sums_within_limits) {
  Job job(argc, argv);
  std::vector<float> x{1, 2};
  all_reduce(job.world(), x, Sum);
  return x[1] == 2.0f * job.size() ? 0 : 1;
}

struct Ends {
  int done = 0, refused = 0;
};

// Two ranks under each of the limits, of programs that do not use Trireme and of Jobs: every launch
// succeeds or says what there is too little of.
Ends launch_under(const std::string& ulimit, const std::vector<int>& limits,
                  const std::string& as = "") {
  Ends ends;
  for (const int limit : limits) {
    for (const std::string program :
         {"true", "env TRIREME_TEST_PROCESS=sums_within_limits $SELF"}) {
      const std::string script =
          "ulimit " + ulimit + " " + std::to_string(limit) + "; become 2 " + program;
      const ShellRun run = run_shell(script, as);
      ++(run.code == 0 ? ends.done : ends.refused);
      if (run.code == 0) continue;
      EXPECT_EQ(run.code, 170) << script << "\n" << run.describe();
      EXPECT_NE(run.out.find("trireme: "), std::string::npos) << script << "\n" << run.describe();
    }
  }
  return ends;
}

#ifndef __SANITIZE_ADDRESS__  // UBSan looks at memory through a pipe
TEST(LauncherLimits, TooFewDescriptorsAreAClearError) {
  const Ends ends = launch_under("-n", {6, 10, 14, 18, 22, 26, 30, 40, 1024});
  EXPECT_GT(ends.done, 0);
  EXPECT_GT(ends.refused, 0);
}
#endif

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // sanitizers map terabytes
TEST(LauncherLimits, TooLittleMemoryIsAClearError) {
  const Ends ends = launch_under(
      "-v", {150'000, 200'000, 300'000, 400'000, 500'000, 600'000, 700'000, 1'000'000, 10'000'000});
  EXPECT_GT(ends.done, 0);
  EXPECT_GT(ends.refused, 0);
}
#endif

#ifndef __SANITIZE_THREAD__  // TSan's own memory is such a file
// Limits in kilobytes; they apply to memory files too.
TEST(LauncherLimits, TooSmallFilesAreAClearError) {
  const Ends ends = launch_under("-f", {0, 1, 3, 5, 1'000'000});
  EXPECT_GT(ends.done, 0);
  EXPECT_GT(ends.refused, 0);
}
#endif

#ifdef TRIREME_CAN_CHANGE_USER
// As another user, so that only the launcher's own processes and threads count.
TEST(LauncherLimits, TooFewProcessesAreAClearError) {
  const Ends ends = launch_under("-u", {1, 2, 4, 8, 12, 16, 24, 32, 48, 64, 4096},
                                 "env ASAN_OPTIONS=detect_leaks=0"  // which needs a process itself
                                 " setpriv --reuid=54321 --clear-groups");
  EXPECT_GT(ends.done, 0);
  EXPECT_GT(ends.refused, 0);
}
#endif

}  // namespace
}  // namespace trireme
