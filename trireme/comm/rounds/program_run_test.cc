// Tests of a program's rounds in which a send fails.
#include "trireme/comm/rounds/program_run.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "trireme/base/error.h"
#include "trireme/comm/collectives.h"
#include "trireme/testing/faulty_transport.h"
#include "trireme/testing/run_ranks.h"

namespace trireme::comm {
namespace {

using testing::FaultyTransport;
using testing::RankContext;
using testing::run_ranks;

struct Outcome {
  bool failed = false;
  std::size_t written = 0;  // elements that changed after the Work had failed
};

// An all_reduce on rank 0, whose transport fails at send number `at`.
Outcome all_reduce_with_failure(RankContext& rank, int at, std::vector<float>& x) {
  int sends = 0;
  const auto fail = [&](FaultyTransport::Call call, int) {
    if (rank.rank == 0 && call == FaultyTransport::Call::Send && sends++ == at)
      rank.transport->abort(std::make_exception_ptr(PeerLost("the test ends the transport")));
  };
  Communicator world(std::make_shared<FaultyTransport>(rank.transport, fail), {});
  std::vector<float> at_end;
  const Work work = world.all_reduce(buffer_of(x), Sum, {.algorithm = "ring"});
  work.on_settled([&](const std::exception_ptr& error) {
    if (error) at_end = x;
  });
  Outcome outcome;
  try {
    work.wait();
  } catch (const Error&) {
    outcome.failed = true;
    rank.waiter->sleep(std::chrono::seconds(1));  // virtual: all that was under way has ended
    for (std::size_t i = 0; i < x.size(); ++i) outcome.written += x[i] != at_end[i];
  }
  return outcome;
}

// The user may free the buffers as soon as the Work has failed. A ring in pieces adds one piece
// while the next one travels, so a send can fail when sums are still to be written.
TEST(ProgramRun, WritesNothingAfterItsWorkHasFailed) {
  int failures = 0;
  bool ends = false;
  for (int at = 0; !ends; ++at) {
    run_ranks(3, [&](RankContext& rank) {
      std::vector<float> x(450'000, static_cast<float>(rank.rank + 1));
      const Outcome outcome = all_reduce_with_failure(rank, at, x);
      EXPECT_EQ(outcome.written, 0u) << "rank " << rank.rank << ", send " << at << " failed";
      failures += outcome.failed;
      if (rank.rank == 0) ends = !outcome.failed;
    });
  }
  EXPECT_GT(failures, 10);
}

}  // namespace
}  // namespace trireme::comm
