#include "trireme/net/socket.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include "trireme/base/error.h"
#include "trireme/base/waiter/real_waiter.h"
#include "trireme/net/endpoint.h"

namespace trireme::inline v0::net {
namespace {

using ::testing::AllOf, ::testing::HasSubstr;

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

TEST(Listen, APortThatIsTakenAndAnAddressOfAnotherHostAreNamed) {
  const auto error_of = [](const std::string& host, std::uint16_t port) -> std::string {
    try {
      listen_tcp(host, port);
    } catch (const ResourceError& error) {
      return error.what();
    }
    return "listens";
  };
  const Listener first = listen_tcp("127.0.0.1");
  const std::string taken = first.address.substr(first.address.find(' ') + 1);
  EXPECT_THAT(error_of("127.0.0.1", parse_endpoint(taken)->port),
              AllOf(HasSubstr("cannot listen on " + taken + ": "), HasSubstr("uses this port")));
  EXPECT_THAT(error_of("192.0.2.1", 0), AllOf(HasSubstr("cannot listen on 192.0.2.1:0: "),
                                              HasSubstr("address of this host")));
}

}  // namespace
}  // namespace trireme::inline v0::net
