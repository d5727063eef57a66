#include "trireme/net/tcp/tcp_link.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>

#include <atomic>
#include <cstring>
#include <functional>
#include <future>
#include <thread>
#include <vector>

#include "trireme/base/error.h"
#include "trireme/base/waiter/real_waiter.h"
#include "trireme/net/connect.h"
#include "trireme/net/mesh_sockets.h"
#include "trireme/net/still_waiter_test.h"

namespace trireme::net {
namespace {

struct Head {
  std::uint8_t kind = 1;  // Eager
  char magic[3] = {'T', 'R', '1'};
  std::uint32_t id = 0;
  std::uint64_t tag = 0;
  std::uint64_t length = 0;
};

bool readable(int socket) {
  pollfd one{socket, POLLIN, 0};
  return ::poll(&one, 1, 0) > 0;
}

// The peer answers each message with the next, so that one read() always has more to do. When
// read() stops for the sake of other peers, its buffer must be empty: no event would report the
// rest.
TEST(TcpLink, NothingIsLeftInTheBufferWhenReadStops) {
  constexpr int kMessages = 1000;
  const auto waiter = RealWaiter::make();
  Messenger messenger(0, 2, waiter);
  int ends[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends), 0);
  const Descriptor peer(ends[1]);
  int received = 0;
  waiter->run([&] {
    std::atomic<bool> unsent{false};
    TcpLink link(messenger, 1, Descriptor(ends[0]), unsent);
    messenger.attach(1, &link);
    std::byte bytes[8] = {};
    const auto say = [&] {
      Head head;
      head.length = sizeof bytes;
      ASSERT_EQ(send(peer.get(), &head, sizeof head, MSG_NOSIGNAL), ssize_t{sizeof head});
      ASSERT_EQ(send(peer.get(), bytes, sizeof bytes, MSG_NOSIGNAL), ssize_t{sizeof bytes});
    };
    std::function<void()> listen = [&] {
      messenger.recv(1, {0}, bytes).on_settled([&](const std::exception_ptr& error) {
        if (error || ++received == kMessages) return;
        say();
        listen();
      });
    };
    listen();
    say();
    const char* ended = nullptr;
    while (readable(link.socket())) link.read(ended);
    EXPECT_EQ(ended, nullptr);
    messenger.lose(1, "the test is over");
  });
  EXPECT_EQ(received, kMessages);
}

// The peer sends the next large message as soon as one has arrived, so there is always more to read.
TEST(TcpLink, OneReadTakesAboutFourMebibytes) {
  Messenger messenger(0, 2, RealWaiter::make());
  int ends[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends), 0);
  const Descriptor peer(ends[1]);
  std::atomic<bool> unsent{false};
  TcpLink link(messenger, 1, Descriptor(ends[0]), unsent);
  messenger.attach(1, &link);
  std::vector<std::byte> bytes(160'000), arrived(bytes.size());
  std::size_t received = 0;
  std::uint32_t next = 0;  // message
  const auto put = [&](const void* data, std::size_t size) {
    ASSERT_EQ(send(peer.get(), data, size, MSG_NOSIGNAL), static_cast<ssize_t>(size));
  };
  std::function<void()> exchange = [&] {
    messenger.recv(1, {0}, arrived).on_settled([&](const std::exception_ptr& error) {
      if (error || ++next == 100) return;
      received += bytes.size();
      exchange();
    });
    const Head asks{.kind = 2, .id = next, .length = bytes.size()};    // Rts
    const Head brings{.kind = 5, .id = next, .length = bytes.size()};  // Data
    put(&asks, sizeof asks);
    put(&brings, sizeof brings);
    put(bytes.data(), bytes.size());
  };
  exchange();
  const char* ended = nullptr;
  EXPECT_TRUE(link.read(ended));
  EXPECT_GE(received, std::size_t{3} << 20);
  EXPECT_LE(received, std::size_t{9} << 19);
  messenger.lose(1, "the test is over");
}

// Nobody else would look after what the socket did not take.
TEST(TcpLink, SaysThatBytesAreLeftAsSoonAsTheSocketIsFull) {
  Messenger messenger(0, 2, RealWaiter::make());
  int ends[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends), 0);
  const Descriptor peer(ends[1]);
  std::atomic<bool> unsent{false};
  TcpLink link(messenger, 1, Descriptor(ends[0]), unsent);
  const std::vector<std::byte> bytes(16'000);
  const Frame frame{FrameKind::Eager, 0, 1, bytes.size()};
  while (!link.blocked()) {
    EXPECT_FALSE(unsent);
    ASSERT_TRUE(link.try_send(frame, bytes));
  }
  EXPECT_TRUE(unsent);
}

// The system tells it once.
TEST(TcpLink, AnErrorThatAWriteHasFoundIsTheReason) {
  const auto waiter = RealWaiter::make();
  Messenger messenger(0, 2, waiter);
  const Listener listener = listen_tcp("127.0.0.1");
  Descriptor own = dial(*waiter, listener.address, waiter->now() + std::chrono::seconds(10));
  {
    const Descriptor peer = accept_now(listener);
    const linger none{.l_onoff = 1, .l_linger = 0};  // closing resets the connection
    ASSERT_EQ(setsockopt(peer.get(), SOL_SOCKET, SO_LINGER, &none, sizeof none), 0);
  }
  std::atomic<bool> unsent{false};
  TcpLink link(messenger, 1, std::move(own), unsent);
  pollfd reset{link.socket(), POLLIN, 0};
  ASSERT_EQ(::poll(&reset, 1, 10'000), 1);
  link.try_send({FrameKind::Eager, 0, 1, 0}, {});
  const char* ended = nullptr;
  EXPECT_FALSE(link.read(ended));
  EXPECT_STREQ(ended, "Connection reset by peer");
  EXPECT_TRUE(link.closed());
}

TEST(TcpTransport, APeerThatBrokeTheProtocolCallsNobody) {
  std::promise<std::string> addresses[2];
  std::shared_future<std::string> known[2] = {addresses[0].get_future(), addresses[1].get_future()};
  const auto exchange_of = [&](int rank) -> Exchange {
    return [&, rank](const std::string& mine) {
      addresses[rank].set_value(mine);
      return std::vector{known[0].get(), known[1].get()};
    };
  };
  Descriptor peer;
  std::thread other([&] {
    peer = std::move(connect_all(*RealWaiter::make(), {.rank = 1, .size = 2}, exchange_of(1),
                                 SocketKind::Tcp)[0][0]);
  });
  const auto waiter = std::make_shared<StillWaiter>();
  const auto transport = connect_tcp(waiter, {.rank = 0, .size = 2}, exchange_of(0));
  other.join();
  const Head room{.kind = static_cast<std::uint8_t>(FrameKind::Room), .length = 1000};
  ASSERT_EQ(send(peer.get(), &room, sizeof room, MSG_NOSIGNAL), ssize_t{sizeof room});
  waiter->wait_until([&] { return transport->lost(1); }, waiter->now() + std::chrono::seconds(30));
  ASSERT_TRUE(transport->lost(1));
  ASSERT_EQ(send(peer.get(), &room, sizeof room, MSG_NOSIGNAL), ssize_t{sizeof room});
  waiter->wait_until([&] { return waiter->called(); }, waiter->now() + std::chrono::seconds(1));
  waiter->source->poll();
  EXPECT_FALSE(waiter->called());
}

}  // namespace
}  // namespace trireme::net
