// The merged trace of ranks with unrelated clocks, over every transport of real processes. CMake
// registers it if time namespaces can be made.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <memory>

#include "tests/conformance/job/own_clock.h"
#include "trireme/testing/run_processes.h"

namespace trireme {
namespace {

TRIREME_PROCESS(clocks) {  // argv[1]: the expected transport
  const int rank = std::atoi(std::getenv("TRIREME_RANK"));
  test::enter_own_clock(argc, argv, rank);
  const std::string transport = argv[1];
  if (transport == "mixed") setenv("TRIREME_HOST", rank < 2 ? "a" : "b", 1);
  const auto trace = std::make_shared<observe::Trace>();
  Job job(argc, argv, {.trace = trace});
  if (job.world().transport_name() != transport) return 2;
  return test::check_clocks(job, *trace);
}

TEST(Clocks, AreMeasuredOverEveryTransport) {
  for (const char* transport : {"shm", "tcp", "mixed"}) {
    const auto run =
        testing::run_processes(3, "clocks", {.transport = transport, .arguments = {transport}});
    EXPECT_EQ(run.exit_code, 0) << transport << "\n" << run.describe();
    EXPECT_THAT(run.ranks[0].out, ::testing::HasSubstr("clocks to"));
  }
}

}  // namespace
}  // namespace trireme
