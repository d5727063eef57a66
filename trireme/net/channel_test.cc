#include "trireme/net/channel.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstring>
#include <thread>

#include "trireme/base/error.h"
#include "trireme/base/real_waiter.h"

namespace trireme::net {
namespace {

using namespace std::chrono_literals;
const Deadline kSoon = Deadline::in(30s);

ChannelOptions options(const std::string& host, const std::string& secret = "s3cret") {
  ChannelOptions result;
  result.host = host;
  result.secret = secret;
  result.timeout = 20s;
  return result;
}

struct Pair {
  explicit Pair(const std::string& host = "127.0.0.1", std::size_t limit = 1 << 24)
      : waiter(RealWaiter::make()), acceptor(waiter, with_limit(host, limit)) {
    std::thread dialler([&] {
      auto mine = options(host);
      mine.identity.rank = 7;
      left = Channel::dial(RealWaiter::make(), acceptor.address(), mine);
    });
    right = acceptor.accept(kSoon);
    dialler.join();
  }
  static ChannelOptions with_limit(const std::string& host, std::size_t limit) {
    auto result = options(host);
    result.max_frame_bytes = limit;
    return result;
  }
  std::shared_ptr<Waiter> waiter;
  Acceptor acceptor;
  std::shared_ptr<Channel> left, right;
};

std::vector<std::byte> bytes_of(std::size_t size, int seed) {
  std::vector<std::byte> bytes(size);
  for (std::size_t i = 0; i < size; ++i) {
    bytes[i] = static_cast<std::byte>(i * 7 + static_cast<std::size_t>(seed));
  }
  return bytes;
}

TEST(Channel, CarriesFramesBothWaysOverEveryKindOfSocket) {
  for (const char* host : {"127.0.0.1", "::1", ""}) {
    Pair pair(host);
    EXPECT_EQ(pair.right->peer().rank, 7);
    for (const std::size_t size : {0ul, 1ul, 100ul, 65537ul, 3000000ul}) {
      const auto a = bytes_of(size, 1), b = bytes_of(size, 2);
      std::vector<std::byte> at_right, at_left;
      const Work sends[] = {pair.left->send(a), pair.right->send(b)};
      const Work receives[] = {pair.right->receive(at_right), pair.left->receive(at_left)};
      for (const Work& work : receives) work.wait(kSoon);
      for (const Work& work : sends) work.wait(kSoon);
      EXPECT_TRUE(at_right == a && at_left == b) << size << " bytes on '" << host << "'";
    }
  }
}

TEST(Channel, KeepsTheOrder) {
  Pair pair;
  std::vector<std::vector<std::byte>> out, in(200);
  std::vector<Work> works;
  for (int i = 0; i < 200; ++i) out.push_back(bytes_of(static_cast<std::size_t>(i) * 37, i));
  for (auto& one : in) works.push_back(pair.right->receive(one));
  for (auto& one : out) works.push_back(pair.left->send(one));
  for (const Work& work : works) work.wait(kSoon);
  EXPECT_TRUE(in == out);
}

TEST(Channel, AFrameThatIsTooLongIsRefusedBeforeAllocation) {
  Pair pair("127.0.0.1", 1000);
  const auto large = bytes_of(1001, 1);
  std::vector<std::byte> in;
  const Work sent = pair.left->send(large);
  EXPECT_THROW(pair.right->receive(in).wait(kSoon), PeerLost);
  EXPECT_TRUE(in.empty());
  try {
    sent.wait(kSoon);
  } catch (const PeerLost&) {  // depends on how much the system had taken
  }
}

TEST(Channel, AnEndThatLeavesIsLostToTheOther) {
  Pair pair;
  const auto last = bytes_of(10, 3);
  std::vector<std::byte> in;
  pair.left->send(last).wait(kSoon);
  pair.left.reset();
  pair.right->receive(in).wait(kSoon);
  EXPECT_TRUE(in == last);
  EXPECT_THROW(pair.right->receive(in).wait(kSoon), PeerLost);
  EXPECT_THROW(pair.right->send(last).wait(kSoon), PeerLost);
}

TEST(Channel, ClosingFailsWhatIsPendingHere) {
  Pair pair;
  std::vector<std::byte> in;
  const Work receive = pair.right->receive(in);
  pair.right->close();
  EXPECT_THROW(receive.wait(kSoon), PeerLost);
}

TEST(Acceptor, WrongSecretAndStrangersAreDroppedTheRightOneGetsIn) {
  const auto waiter = RealWaiter::make();
  Acceptor acceptor(waiter, options("127.0.0.1"));
  std::thread dialler([&] {
    const auto mine = RealWaiter::make();
    try {
      (void)Channel::dial(mine, acceptor.address(), options("", "wrong"));
      ADD_FAILURE() << "a wrong secret was let in";
    } catch (const RefusedError& error) {
      EXPECT_EQ(error.exit_code(), 11);
    }
    {
      const Descriptor stranger = dial(*mine, acceptor.address(), mine->now() + 10s);
      const char text[128] = "GET / HTTP/1.1\r\n\r\n";
      ASSERT_EQ(send(stranger.get(), text, sizeof text, MSG_NOSIGNAL), 128);
    }
    const auto good = Channel::dial(mine, acceptor.address(), options(""));
    good->send(bytes_of(3, 1)).wait(kSoon);
  });
  const auto channel = acceptor.accept(kSoon);
  std::vector<std::byte> in;
  channel->receive(in).wait(kSoon);
  EXPECT_TRUE(in == bytes_of(3, 1));
  dialler.join();
}

TEST(Acceptor, AnotherEpochIsRefusedOnBothSides) {
  const auto waiter = RealWaiter::make();
  Acceptor acceptor(waiter, options("127.0.0.1"));
  std::thread dialler([&] {
    auto mine = options("");
    mine.identity.epoch = 4;
    try {
      (void)Channel::dial(RealWaiter::make(), acceptor.address(), mine);
      ADD_FAILURE() << "an old epoch was let in";
    } catch (const RefusedError& error) {
      EXPECT_EQ(error.exit_code(), 10);
      EXPECT_THAT(error.what(), ::testing::HasSubstr("epoch 0, this one 4"));
    }
  });
  EXPECT_THROW((void)acceptor.accept(Deadline::in(300ms)), Error);
  dialler.join();
}

TEST(Acceptor, NobodyComesIsATimeout) {
  const auto waiter = RealWaiter::make();
  Acceptor acceptor(waiter, options("127.0.0.1"));
  EXPECT_THROW((void)acceptor.accept(Deadline::in(20ms)), TimeoutError);
}

TEST(Acceptor, ANetworkAddressNeedsASecret) {
  EXPECT_THROW(Acceptor(RealWaiter::make(), options("0.0.0.0", "")), ConfigError);
}

}  // namespace
}  // namespace trireme::net
