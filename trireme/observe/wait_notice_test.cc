#include "trireme/observe/wait_notice.h"

#include <gtest/gtest.h>

#include "trireme/testing/run_ranks.h"

namespace trireme::observe::wait_notice_test {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// The lines of a wait of this length, on a virtual clock.
std::string lines_of(Duration wait) {
  ::testing::internal::CaptureStderr();
  testing::run_ranks(1, [&](testing::RankContext& rank) {
    Waiter& waiter = *rank.waiter;
    int asked = 0;
    {
      const WaitNotice notice(waiter, "rank 0", [&] { return "rank " + std::to_string(++asked); });
      waiter.sleep(wait);
    }
    waiter.sleep(seconds(100));
  });
  return ::testing::internal::GetCapturedStderr();
}

TEST(WaitNotice, SaysItAfterTwoFourAndEightSeconds) {
  EXPECT_EQ(lines_of(seconds(15)),
            "rank 0 waits for rank 1 (2 s so far)\n"
            "rank 0 waits for rank 2 (4 s so far)\n"
            "rank 0 waits for rank 3 (8 s so far)\n");
}

TEST(WaitNotice, IsSilentInAShortWait) { EXPECT_EQ(lines_of(milliseconds(1999)), ""); }

}  // namespace
}  // namespace trireme::observe::wait_notice_test
