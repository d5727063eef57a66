// A group is void while a rank waits for another one that is there and never answers.
#include <gtest/gtest.h>
#include <sys/socket.h>

#include "trireme/base/error.h"
#include "trireme/base/waiter/real_waiter.h"
#include "trireme/net/connect.h"
#include "trireme/net/socket.h"

namespace trireme::inline v0::net {
namespace {

using namespace std::chrono_literals;

// Rank 1 of 2, whose group is void when that is asked for the third time.
ConnectOptions options_of_one() {
  return {.rank = 1,
          .size = 2,
          .secret = "s3cret",
          .timeout = 20s,
          .cancelled = [asked = std::make_shared<int>(0)] { return ++*asked >= 3; }};
}

TEST(Cancelled, ARankThatDialsTheOther) {
  const auto waiter = RealWaiter::make();
  const Listener silent = listen_tcp("127.0.0.1");
  const auto exchange = [&](const std::string& mine) {
    return std::vector<std::string>{silent.address + " 1", mine};
  };
  EXPECT_THROW((void)connect_tcp(waiter, options_of_one(), exchange), PeerLost);
}

TEST(Cancelled, ARankThatWaitsForTheOthersMemory) {
  int ends[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends), 0);
  const Descriptor silent(ends[1]);
  EXPECT_THROW((void)make_shm(RealWaiter::make(), options_of_one(), {ends[0], -1}), PeerLost);
}

}  // namespace
}  // namespace trireme::inline v0::net
