#include "trireme/net/tcp/tcp_link.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>

#include <atomic>
#include <cstring>
#include <functional>
#include <vector>

#include "trireme/base/waiter/real_waiter.h"

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

}  // namespace
}  // namespace trireme::net
