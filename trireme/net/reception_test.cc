// Unauthenticated callers at a listening port: silent ones, garbage, too many bytes, replays,
// crowds. None of them gets in or keeps the expected caller out.
#include "trireme/net/reception.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <random>
#include <set>
#include <thread>

#include "trireme/base/error.h"
#include "trireme/base/waiter/real_waiter.h"
#include "trireme/net/channel.h"

namespace trireme::net {
namespace {

using namespace std::chrono_literals;

class Strangers : public ::testing::Test {
 protected:
  Descriptor connect() { return dial(*waiter_, acceptor_->address(), waiter_->now() + 10s); }
  static void say(const Descriptor& socket, std::span<const std::byte> bytes) {
    // The socket may be closed during this.
    (void)!::send(socket.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
  }
  static ChannelOptions options() {
    ChannelOptions result;
    result.secret = "s3cret";
    result.timeout = 20s;
    return result;
  }
  /// How long the caller that knows the secret needs to get in among the strangers.
  Duration let_the_right_one_in() {
    const TimePoint start = steady_now();
    std::thread dialler([&] {
      auto mine = options();
      mine.identity.rank = 7;
      right_ = dial_channel(RealWaiter::make(), acceptor_->address(), mine);
    });
    std::shared_ptr<Channel> channel;
    acceptor_->accept(channel).wait(Deadline::in(15s));
    dialler.join();
    EXPECT_EQ(channel->peer().rank, 7);
    return steady_now() - start;
  }

  const std::shared_ptr<Waiter> waiter_ = RealWaiter::make();
  const std::unique_ptr<Acceptor> acceptor_ = listen_channels(waiter_, options());
  std::shared_ptr<Channel> right_;
};

TEST_F(Strangers, WhoSayNothingKeepNobodyWaiting) {
  std::vector<Descriptor> silent;
  for (int i = 0; i < 20; ++i) silent.push_back(connect());
  EXPECT_LT(let_the_right_one_in(), 5s);
}

TEST_F(Strangers, AHalfOpenHandshakeKeepsNobodyWaiting) {
  std::vector<Descriptor> halves;
  for (int i = 0; i < 20; ++i) {
    halves.push_back(connect());
    HandshakeState state(true, {}, "s3cret");
    const auto hello = state.take_output();
    say(halves.back(), std::span(hello).first(static_cast<std::size_t>(3 * i)));
  }
  EXPECT_LT(let_the_right_one_in(), 5s);
}

TEST_F(Strangers, ACrowdIsDroppedTheLongestWaitingFirst) {
  std::vector<Descriptor> crowd;
  for (int i = 0; i < 100; ++i) crowd.push_back(connect());  // fills the listener's backlog
  EXPECT_LT(let_the_right_one_in(), 5s);
  for (int i = 0; i < 100; ++i) crowd.push_back(connect());
  EXPECT_LT(let_the_right_one_in(), 5s);
  std::byte bytes[256];
  EXPECT_EQ(recv(crowd[0].get(), bytes, 64, MSG_WAITALL), 64);  // the acceptor's greeting
  pollfd first{crowd[0].get(), POLLIN, 0};
  ASSERT_EQ(::poll(&first, 1, 10'000), 1);
  EXPECT_LE(recv(crowd[0].get(), bytes, sizeof bytes, 0), 0) << "nobody dropped it";
}

// More ranks than may shake hands at a time, which all come at once.
TEST(Reception, LetsAllInWhoKnowTheSecretHoweverMany) {
  constexpr int kRanks = 12;
  const auto waiter = RealWaiter::make();
  const Listener listener = listen_tcp("127.0.0.1");
  std::vector<std::thread> diallers;
  std::vector<Descriptor> sockets(kRanks);
  const auto come = [&](int rank) {
    const auto mine = RealWaiter::make();
    Descriptor& socket = sockets[static_cast<std::size_t>(rank)];
    socket = dial(*mine, listener.address, mine->now() + 10s);
    EXPECT_NO_THROW(
        handshake(*mine, socket.get(), true, {.rank = rank}, "s3cret", mine->now() + 10s));
  };
  for (int rank = 0; rank < kRanks; ++rank) diallers.emplace_back(come, rank);
  Reception reception(*waiter, listener, {}, "s3cret", /*most_callers=*/2);
  pollfd one{listener.socket.get(), POLLIN, 0};
  EXPECT_EQ(::poll(&one, 1, 10'000), 1);
  std::set<int> came;
  while (came.size() < kRanks)
    came.insert(reception.next(waiter->now() + 10s, "a rank").second.rank);
  for (std::thread& dialler : diallers) dialler.join();
}

TEST_F(Strangers, GarbageIsDroppedUnread) {
  std::mt19937_64 random(7);
  std::vector<Descriptor> noisy;
  for (int i = 0; i < 50; ++i) {
    std::vector<std::byte> bytes(1 + random() % 200'000);
    for (auto& byte : bytes) byte = static_cast<std::byte>(random());
    noisy.push_back(connect());
    say(noisy.back(), bytes);
  }
  EXPECT_LT(let_the_right_one_in(), 5s);
}

// Repeats everything that an accepted rank has sent.
TEST_F(Strangers, AReplayedHandshakeIsRefused) {
  // A middleman between a rank and the acceptor records what the rank sends.
  const Listener middle = listen_tcp("127.0.0.1");
  std::vector<std::byte> said;
  std::thread dialler(
      [&] { right_ = dial_channel(RealWaiter::make(), middle.address, options()); });
  std::thread middleman([&] {
    const auto mine = RealWaiter::make();
    Descriptor from;
    while (!(from = accept_now(middle))) mine->sleep(1ms);
    const Descriptor to = dial(*mine, acceptor_->address(), mine->now() + 10s);
    const auto carry = [&](const Descriptor& a, const Descriptor& b, std::size_t count, bool note) {
      std::vector<std::byte> bytes(count);
      read_all(*mine, a.get(), bytes, mine->now() + 10s, "one end");
      write_all(*mine, b.get(), bytes, mine->now() + 10s, "the other");
      if (note) said.insert(said.end(), bytes.begin(), bytes.end());
    };
    carry(from, to, 64, true), carry(to, from, 64, false);
    carry(from, to, 32, true), carry(to, from, 32, false);
  });
  std::shared_ptr<Channel> channel;
  acceptor_->accept(channel).wait(Deadline::in(10s));
  dialler.join();
  middleman.join();
  ASSERT_EQ(said.size(), 96u);

  const Descriptor stranger = connect();
  say(stranger, said);
  std::vector<std::byte> frame(16 + 8, std::byte{1});
  say(stranger, frame);
  std::shared_ptr<Channel> again;
  const Work accepted = acceptor_->accept(again);
  EXPECT_THROW(accepted.wait(Deadline::in(300ms)), TimeoutError);
  std::array<std::byte, 96> answer;
  ASSERT_EQ(recv(stranger.get(), answer.data(), answer.size(), 0), 96);
  for (std::size_t i = 64; i < 96; ++i) ASSERT_EQ(answer[i], std::byte{0}) << "a proof was given";
}

TEST(HandshakeState, AnyChangedByteIsRefused) {
  std::mt19937_64 random(11);
  for (int round = 0; round < 2000; ++round) {
    HandshakeState dialler(true, {0, 1, 2, 3}, "s3cret"), acceptor(false, {0, 0, 2, 3}, "s3cret");
    auto hello = dialler.take_output();
    (void)acceptor.take_output();
    // Reserved bytes and the rank may differ, but the proof covers them.
    hello[random() % hello.size()] ^= static_cast<std::byte>(1 + random() % 255);
    try {
      acceptor.feed(hello);
      std::vector<std::byte> proof(32, static_cast<std::byte>(random()));
      acceptor.feed(proof);
      FAIL() << "let in after " << round << " rounds";
    } catch (const RefusedError&) {
    }
  }
}

TEST(HandshakeState, AHelloChangedOnTheWayIsRefusedByBothEnds) {
  for (std::size_t at = 0; at < 64; ++at) {
    HandshakeState dialler(true, {0, 1, 2, 3}, "s3cret"), acceptor(false, {0, 0, 2, 3}, "s3cret");
    auto from_dialler = dialler.take_output(), from_acceptor = acceptor.take_output();
    from_dialler[at] ^= std::byte{1};
    EXPECT_THROW(
        {
          acceptor.feed(from_dialler);
          dialler.feed(from_acceptor);
          acceptor.feed(dialler.take_output());
        },
        RefusedError)
        << "byte " << at;
    EXPECT_NE(acceptor.wanted(), 0u);
    EXPECT_NE(dialler.wanted(), 0u);
  }
}

}  // namespace
}  // namespace trireme::net
