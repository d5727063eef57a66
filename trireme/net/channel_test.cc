#include "trireme/net/channel.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstring>
#include <thread>

#include "trireme/base/check.h"
#include "trireme/base/error.h"
#include "trireme/base/waiter/real_waiter.h"
#include "trireme/net/still_waiter_test.h"

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
  explicit Pair(const std::string& host = "127.0.0.1", std::size_t limit = 1 << 24,
                int carriers = 0)
      : waiter(RealWaiter::make()),
        acceptor(listen_channels(waiter, limited(host, limit, carriers))) {
    for (int channel = 0; channel <= carriers; ++channel) {  // the last carrier's remains
      std::thread dialler([&] {
        auto mine = options(host);
        mine.identity.rank = 7;
        left = dial_channel(RealWaiter::make(), acceptor->address(), mine);
      });
      acceptor->accept(right).wait(kSoon);
      dialler.join();
    }
  }
  static ChannelOptions limited(const std::string& host, std::size_t limit, int carriers) {
    auto result = options(host);
    result.max_frame_bytes = limit;
    result.carriers = carriers;
    return result;
  }
  std::shared_ptr<Waiter> waiter;
  std::unique_ptr<Acceptor> acceptor;
  std::shared_ptr<Channel> left, right;
};

// A channel whose bytes its waiter's context moves, or another thread.
class ChannelOfCarriers : public ::testing::TestWithParam<int> {
 protected:
  Pair pair{"127.0.0.1", 1 << 24, GetParam()};
};
INSTANTIATE_TEST_SUITE_P(Carriers, ChannelOfCarriers, ::testing::Values(0, 1));

std::vector<std::byte> payload_of(const ChannelFrame& frame) {
  return {frame.payload().begin(), frame.payload().end()};
}

std::vector<std::byte> bytes_of(std::size_t size, int seed) {
  std::vector<std::byte> bytes(size);
  for (std::size_t i = 0; i < size; ++i) {
    bytes[i] = static_cast<std::byte>(i * 7 + static_cast<std::size_t>(seed));
  }
  return bytes;
}

TEST(Channel, CarriesFramesBothWaysOverEveryKindOfSocket) {
  for (const auto& [host, carriers] : std::initializer_list<std::pair<const char*, int>>{
           {"127.0.0.1", 0}, {"127.0.0.1", 2}, {"::1", 0}, {"", 0}}) {
    Pair pair(host, 1 << 24, carriers);
    EXPECT_EQ(pair.right->peer().rank, 7);
    for (const std::size_t size : {0ul, 1ul, 100ul, 65537ul, 3000000ul}) {
      const auto a = bytes_of(size, 1), b = bytes_of(size, 2);
      const auto head = bytes_of(size % 60'000, 3);
      ChannelFrame at_right, at_left;
      const Work sends[] = {pair.left->send(head, a), pair.right->send({}, b)};
      const Work receives[] = {pair.right->receive(at_right), pair.left->receive(at_left)};
      for (const Work& work : receives) work.wait(kSoon);
      for (const Work& work : sends) work.wait(kSoon);
      EXPECT_TRUE(payload_of(at_right) == a && payload_of(at_left) == b)
          << size << " bytes on '" << host << "'";
      EXPECT_TRUE(
          std::equal(head.begin(), head.end(), at_right.head().begin(), at_right.head().end()));
      EXPECT_TRUE(at_left.head().empty());
    }
  }
}

// Such as the counts of rows of some thousands of embedding tables.
TEST_P(ChannelOfCarriers, CarriesALongHead) {
  const auto head = bytes_of(1'000'000, 1), payload = bytes_of(10, 2);
  ChannelFrame in;
  const Work received = pair.right->receive(in), sent = pair.left->send(head, payload);
  received.wait(kSoon);
  sent.wait(kSoon);
  EXPECT_TRUE(std::equal(head.begin(), head.end(), in.head().begin(), in.head().end()));
  EXPECT_TRUE(payload_of(in) == payload);
}

TEST_P(ChannelOfCarriers, KeepsTheOrder) {
  std::vector<std::vector<std::byte>> out;
  std::vector<ChannelFrame> in(200);
  std::vector<Work> works;
  for (int i = 0; i < 200; ++i) out.push_back(bytes_of(static_cast<std::size_t>(i) * 37, i));
  for (auto& one : in) works.push_back(pair.right->receive(one));
  for (auto& one : out) works.push_back(pair.left->send({}, one));
  for (const Work& work : works) work.wait(kSoon);
  for (std::size_t i = 0; i < in.size(); ++i) EXPECT_TRUE(payload_of(in[i]) == out[i]) << i;
}

TEST(Channel, AFrameThatIsTooLongIsRefusedBeforeAllocation) {
  Pair pair("127.0.0.1", 1000);
  const auto large = bytes_of(1001, 1);
  ChannelFrame in;
  const Work sent = pair.left->send({}, large);
  EXPECT_THROW(pair.right->receive(in).wait(kSoon), PeerLost);
  EXPECT_TRUE(in.payload().empty());
  try {
    sent.wait(kSoon);
  } catch (const PeerLost&) {  // depends on how much the system had taken
  }
}

TEST_P(ChannelOfCarriers, AnEndThatLeavesIsLostToTheOther) {
  const auto last = bytes_of(10, 3);
  ChannelFrame in;
  pair.left->send({}, last).wait(kSoon);
  pair.left.reset();
  pair.right->receive(in).wait(kSoon);
  EXPECT_TRUE(payload_of(in) == last);
  EXPECT_THROW(pair.right->receive(in).wait(kSoon), PeerLost);
  EXPECT_THROW(pair.right->send({}, last).wait(kSoon), PeerLost);
}

TEST_P(ChannelOfCarriers, ClosingFailsWhatIsPendingHere) {
  ChannelFrame in;
  const Work receive = pair.right->receive(in);
  pair.right->close();
  EXPECT_THROW(receive.wait(kSoon), PeerLost);
}

// Their continuations need no locks of their own.
TEST_P(ChannelOfCarriers, WorksSettleInTheContextOfTheWaiter) {
  ChannelFrame in;
  std::atomic<int> inside = -1;
  const Work received = pair.right->receive(in);
  received.on_settled([&](const std::exception_ptr&) {
    try {
      pair.waiter->wait_until([] { return false; }, pair.waiter->now());
      inside = 0;
    } catch (const CheckFailure&) {  // a wait inside the context would never end
      inside = 1;
    }
  });
  const auto frame = bytes_of(3'000'000, 1);
  const Work sent = pair.left->send({}, frame);
  pair.waiter->wait_until([&] { return inside >= 0; }, pair.waiter->now() + 30s);
  sent.wait(kSoon);
  EXPECT_EQ(inside, 1);
}

TEST(Channel, WhatIsNoFrameIsNotCalledTooLong) {
  int ends[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends), 0);
  const Descriptor other(ends[1]);
  const auto channel = channel_over(RealWaiter::make(), Descriptor(ends[0]), {}, 1000);
  const FrameStart start{.magic = 1};
  ASSERT_EQ(write(other.get(), &start, sizeof start), 32);
  ChannelFrame in;
  EXPECT_THAT([&] { channel->receive(in).wait(kSoon); },
              ::testing::ThrowsMessage<PeerLost>(::testing::HasSubstr("no frame of this version")));
}

// Its host may be gone: nobody acknowledges what was sent then, either.
TEST(Channel, AnAcceptedEndDoesNotWaitForEverUntilTheOtherReads) {
  auto listening = options("127.0.0.1");
  listening.patience = 100ms;
  const auto waiter = RealWaiter::make();
  const auto acceptor = listen_channels(waiter, listening);
  std::shared_ptr<Channel> accepted, dialled;
  std::thread dialler([&] {
    dialled = dial_channel(RealWaiter::make(), acceptor->address(), options("127.0.0.1"));
  });
  acceptor->accept(accepted).wait(kSoon);
  dialler.join();
  const auto large = bytes_of(64 << 20, 1);
  EXPECT_THROW(accepted->send({}, large).wait(kSoon), PeerLost);
}

TEST(Channel, EndsOnOneHostShareMemory) {
  Pair pair("");
  EXPECT_TRUE(pair.right->area_of_peer(0).empty());
  std::vector<SharedArea> areas;
  for (const std::size_t bytes : {1ul, 100'000ul}) areas.push_back(*pair.left->share(bytes));
  areas[1].bytes[99'999] = std::byte{5};
  const auto frame = bytes_of(10, 1);
  ChannelFrame in;
  const Work sent = pair.left->send({}, frame);
  pair.right->receive(in).wait(kSoon);
  sent.wait(kSoon);
  EXPECT_TRUE(payload_of(in) == frame);
  const std::span<std::byte> seen = pair.right->area_of_peer(1);
  ASSERT_EQ(seen.size(), 100'000u);
  EXPECT_EQ(seen[99'999], std::byte{5});
  seen[0] = std::byte{7};
  EXPECT_EQ(areas[1].bytes[0], std::byte{7});
  areas.clear();
  pair.left.reset();
  EXPECT_EQ(pair.right->area_of_peer(1)[0], std::byte{7});  // it outlives its owner
  EXPECT_TRUE(pair.right->area_of_peer(2).empty());
}

TEST(Channel, EndsThatMayBeOnTwoHostsShareNone) {
  Pair pair("127.0.0.1");
  EXPECT_FALSE(pair.left->share(100).has_value());
  Pair other("");
  SharedArea area = *other.left->share(100);
  EXPECT_FALSE(pair.left->share(area));
}

TEST(Channel, SeveralEndsShareOneMemory) {
  Pair first(""), second("");
  second.left->share(1);
  SharedArea area = *first.left->share(100);
  ASSERT_TRUE(second.left->share(area));
  EXPECT_EQ(area.id, 1u);
  ChannelFrame in;
  for (Pair* pair : {&first, &second}) {
    const Work sent = pair->left->send({}, {});
    pair->right->receive(in).wait(kSoon);
    sent.wait(kSoon);
  }
  first.left.reset();
  area.bytes[99] = std::byte{3};
  EXPECT_EQ(first.right->area_of_peer(0)[99], std::byte{3});
  EXPECT_EQ(second.right->area_of_peer(1)[99], std::byte{3});
}

TEST(Channel, AFrameThatAnnouncesMemoryWithoutItIsRefused) {
  int ends[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends), 0);
  const Descriptor stranger(ends[1]);
  const auto channel = channel_over(RealWaiter::make(), Descriptor(ends[0]), {}, 1000);
  const FrameStart start{.area = 4096};
  ASSERT_EQ(write(stranger.get(), &start, sizeof start), 32);
  ChannelFrame in;
  EXPECT_THROW(channel->receive(in).wait(kSoon), PeerLost);
}

struct HalfPair {
  HalfPair() {
    int ends[2];
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends), 0);
    other = Descriptor(ends[1]);
    channel = channel_over(waiter, Descriptor(ends[0]), {}, 1000);
  }
  const std::shared_ptr<StillWaiter> waiter = std::make_shared<StillWaiter>();
  Descriptor other;
  std::shared_ptr<Channel> channel;
};

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // their allocators abort
TEST(Channel, AFrameThatThereIsNoMemoryForIsRefused) {
  int ends[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends), 0);
  const Descriptor other(ends[1]);
  const auto channel = channel_over(RealWaiter::make(), Descriptor(ends[0]), {}, SIZE_MAX);
  const FrameStart start{.payload = std::uint64_t{1} << 50};
  ASSERT_EQ(write(other.get(), &start, sizeof start), 32);
  ChannelFrame in;
  EXPECT_THROW(channel->receive(in).wait(kSoon), PeerLost);
  in.resize(0, 1000);  // for the next channel
  std::ranges::fill(in.payload(), std::byte{1});
}
#endif

// A server that computes has others do the same.
TEST(Channel, ACallerCallsNobodyWhileNobodyAcceptsHim) {
  const auto still = std::make_shared<StillWaiter>();
  const auto acceptor = listen_channels(still, {});
  const auto waiter = RealWaiter::make();
  const Descriptor caller =
      dial(*waiter, acceptor->address(), waiter->now() + std::chrono::seconds(10));
  EXPECT_FALSE(still->called());
  std::shared_ptr<Channel> channel;
  const Work accepted = acceptor->accept(channel);
  EXPECT_FALSE(accepted.done());
  write(caller.get(), "garbage", 7);
  pollfd one{still->source->descriptor(), POLLIN, 0};
  EXPECT_EQ(poll(&one, 1, 10'000), 1) << "it is served while somebody waits";
}

// Otherwise a waiter would poll without end.
TEST(Channel, AnEndThatHasLeftCallsNobodyWhileNobodyWaitsForIt) {
  HalfPair pair;
  EXPECT_FALSE(pair.waiter->called());
  pair.other = Descriptor();
  EXPECT_FALSE(pair.waiter->called());
  ChannelFrame in;
  EXPECT_THROW(pair.channel->receive(in).wait(kSoon), PeerLost);
  EXPECT_FALSE(pair.waiter->called());
}

TEST(Channel, AReceiverIsCalledWhenAFrameArrivesAndWhenTheOtherEndLeaves) {
  HalfPair pair;
  const FrameStart empty;
  ChannelFrame in;
  for (int frame = 0; frame < 2; ++frame) {
    const Work received = pair.channel->receive(in);
    EXPECT_FALSE(pair.waiter->called());
    ASSERT_EQ(write(pair.other.get(), &empty, sizeof empty), 32);
    EXPECT_TRUE(pair.waiter->called());
    received.wait(kSoon);
    EXPECT_FALSE(pair.waiter->called());
  }
  const Work received = pair.channel->receive(in);
  pair.other = Descriptor();
  EXPECT_TRUE(pair.waiter->called());
  EXPECT_THROW(received.wait(kSoon), PeerLost);
}

TEST(Channel, AFrameThatArrivedIsDeliveredThoughASendFails) {
  HalfPair pair;
  const FrameStart start{.head = 2};
  ASSERT_EQ(write(pair.other.get(), &start, sizeof start), 32);
  ASSERT_EQ(write(pair.other.get(), "ok", 2), 2);
  pair.other = Descriptor();
  const auto bytes = bytes_of(10, 1);
  EXPECT_THROW(pair.channel->send(bytes).wait(kSoon), PeerLost);
  EXPECT_THROW(pair.channel->send(bytes).wait(kSoon), PeerLost);
  ChannelFrame in;
  pair.channel->receive(in).wait(kSoon);
  EXPECT_EQ(in.head().size(), 2u);
  EXPECT_EQ(in.head()[0], std::byte{'o'});
  EXPECT_THROW(pair.channel->receive(in).wait(kSoon), PeerLost);
  EXPECT_THROW(pair.channel->send(bytes).wait(kSoon), PeerLost);
}

TEST(Channel, AnEndWhoseSendFailedStillReceives) {
  HalfPair pair;
  shutdown(pair.other.get(), SHUT_RD);
  const auto bytes = bytes_of(10, 1);
  EXPECT_THROW(pair.channel->send(bytes).wait(kSoon), PeerLost);
  ChannelFrame in;
  const Work received = pair.channel->receive(in);
  const FrameStart empty;
  ASSERT_EQ(::send(pair.other.get(), &empty, sizeof empty, MSG_NOSIGNAL), 32);
  received.wait(kSoon);
}

TEST(Acceptor, WrongSecretAndStrangersAreDroppedTheRightOneGetsIn) {
  const auto waiter = RealWaiter::make();
  const auto acceptor = listen_channels(waiter, options("127.0.0.1"));
  std::thread dialler([&] {
    const auto mine = RealWaiter::make();
    try {
      (void)dial_channel(mine, acceptor->address(), options("", "wrong"));
      ADD_FAILURE() << "a wrong secret was let in";
    } catch (const RefusedError& error) {
      EXPECT_EQ(error.exit_code(), 11);
    }
    {
      const Descriptor stranger = dial(*mine, acceptor->address(), mine->now() + 10s);
      const char text[128] = "GET / HTTP/1.1\r\n\r\n";
      ASSERT_EQ(send(stranger.get(), text, sizeof text, MSG_NOSIGNAL), 128);
    }
    const auto good = dial_channel(mine, acceptor->address(), options(""));
    const auto three = bytes_of(3, 1);
    good->send({}, three).wait(kSoon);
  });
  std::shared_ptr<Channel> channel;
  acceptor->accept(channel).wait(kSoon);
  ChannelFrame in;
  channel->receive(in).wait(kSoon);
  EXPECT_TRUE(payload_of(in) == bytes_of(3, 1));
  dialler.join();
}

TEST(Acceptor, AnotherEpochIsRefusedOnBothSides) {
  const auto waiter = RealWaiter::make();
  const auto acceptor = listen_channels(waiter, options("127.0.0.1"));
  std::thread dialler([&] {
    auto mine = options("");
    mine.identity.epoch = 4;
    try {
      (void)dial_channel(RealWaiter::make(), acceptor->address(), mine);
      ADD_FAILURE() << "an old epoch was let in";
    } catch (const RefusedError& error) {
      EXPECT_EQ(error.exit_code(), 10);
      EXPECT_THAT(error.what(), ::testing::HasSubstr("epoch 0, this one 4"));
    }
  });
  std::shared_ptr<Channel> channel;
  const Work accepted = acceptor->accept(channel);
  dialler.join();
  EXPECT_FALSE(accepted.done());
}

TEST(Acceptor, WhoWaitsForACallerWhenItEndsIsTold) {
  auto acceptor = listen_channels(RealWaiter::make(), options("127.0.0.1"));
  std::shared_ptr<Channel> channel;
  const Work accepted = acceptor->accept(channel);
  acceptor.reset();
  EXPECT_THROW(accepted.wait(kSoon), PeerLost);
}

TEST(Acceptor, ANetworkAddressNeedsASecret) {
  EXPECT_THROW((void)listen_channels(RealWaiter::make(), options("0.0.0.0", "")), ConfigError);
}

}  // namespace
}  // namespace trireme::net
