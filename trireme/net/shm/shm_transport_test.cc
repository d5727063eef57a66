#include <gtest/gtest.h>
#include <sys/socket.h>

#include <array>
#include <thread>

#include "trireme/base/error.h"
#include "trireme/base/waiter/real_waiter.h"
#include "trireme/net/connect.h"
#include "trireme/net/still_waiter_test.h"

namespace trireme::net::shm_transport_test {
namespace {

const Deadline kSoon = Deadline::in(std::chrono::seconds(30));

// The peer has ended, and what goes on after its message looks at its socket.
TEST(ShmTransport, AMessageOfAPeerThatHasEndedIsTakenOnce) {
  int ends[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends), 0);
  std::array<std::byte, 8> out{std::byte{7}}, in{};
  std::thread peer([&] {
    const auto transport = make_shm(RealWaiter::make(), {.rank = 1, .size = 2}, {ends[1], -1});
    transport->send(0, Tag{1}, out).wait(kSoon);
  });
  const auto waiter = std::make_shared<StillWaiter>();
  const auto transport = make_shm(waiter, {.rank = 0, .size = 2}, {-1, ends[0]});
  peer.join();
  const Work received = transport->recv(1, Tag{1}, in);
  received.on_settled([&](const std::exception_ptr&) {
    EXPECT_TRUE(transport->capabilities().memory->map(1, RegionId{0}).empty());
  });
  received.wait(kSoon);
  EXPECT_EQ(in, out);
  EXPECT_THROW(transport->recv(1, Tag{1}, in).wait(kSoon), PeerLost);
}

}  // namespace
}  // namespace trireme::net::shm_transport_test
