#include "trireme/net/socket.h"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include "trireme/base/waiter/real_waiter.h"

namespace trireme::inline v0::net {
namespace {

int send_buffer(int socket) {
  int bytes = 0;
  socklen_t length = sizeof bytes;
  EXPECT_EQ(getsockopt(socket, SOL_SOCKET, SO_SNDBUF, &bytes, &length), 0);
  return bytes;
}

// Both ends of a connection to a listener at `host`.
struct Connection {
  explicit Connection(const std::string& host)
      : listener(listen_tcp(host)),
        dialled(dial(*waiter, listener.address, waiter->now() + std::chrono::seconds(10))) {
    wait_for(*waiter, listener.socket.get(), 1 /* POLLIN */,
             waiter->now() + std::chrono::seconds(10), "a connection");
    accepted = accept_now(listener);
  }
  std::shared_ptr<Waiter> waiter = RealWaiter::make();
  Listener listener;
  Descriptor dialled, accepted;
};

TEST(LocalQueue, IsBoundedWithinAHost) {
  for (const char* host : {"127.0.0.1", "::1"}) {
    const Connection pair(host);
    for (const Descriptor* end : {&pair.dialled, &pair.accepted}) {
      ASSERT_TRUE(*end);
      const int before = send_buffer(end->get());
      bound_local_queue(end->get());
      EXPECT_EQ(send_buffer(end->get()), 2 * kLocalQueueBytes) << host;  // the system doubles it
      EXPECT_NE(before, 2 * kLocalQueueBytes) << host;
    }
  }
}

// The system connects to 127.0.0.2 from 127.0.0.1: two addresses, like two hosts.
TEST(LocalQueue, IsLeftToTheSystemBetweenHosts) {
  const Connection pair("127.0.0.2");
  for (const Descriptor* end : {&pair.dialled, &pair.accepted}) {
    ASSERT_TRUE(*end);
    const int before = send_buffer(end->get());
    bound_local_queue(end->get());
    EXPECT_EQ(send_buffer(end->get()), before);
  }
}

}  // namespace
}  // namespace trireme::inline v0::net
