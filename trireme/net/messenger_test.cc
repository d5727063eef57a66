// A Messenger stores a bounded part of messages that nobody has received yet, and this does not
// block the message that is awaited. Two messengers, over links that deliver every frame at once.
#include "trireme/net/messenger.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "trireme/base/error.h"
#include "trireme/base/waiter/real_waiter.h"

namespace trireme {
namespace {

using net::Frame;
using net::FrameKind;
using net::kEagerLimit;
using net::kMessageCost;
using net::kUnexpectedLimit;
using net::Messenger;
using ::testing::HasSubstr;
using Bytes = std::vector<std::byte>;

// Delivers frames to the other messenger at once.
class Wire final : public net::Link {
 public:
  Wire(Messenger& to, int sender) : to_(to), sender_(sender) {}
  bool try_send(const Frame& frame, std::span<const std::byte> payload) override {
    if (frame.kind == FrameKind::Eager) {
      to_.on_eager(sender_, {frame.tag}, payload);
    } else {
      to_.on_control(sender_, frame);
    }
    return true;
  }
  std::size_t try_stream(std::size_t, const net::Piece& piece) override {
    std::byte* const place = to_.destination(sender_, piece.id, std::nullopt, piece.rest.size());
    std::copy(piece.rest.begin(), piece.rest.end(), place);
    to_.on_data(sender_, piece.id, piece.rest.size());
    return piece.rest.size();
  }

 private:
  Messenger& to_;
  const int sender_;
};

class MessengerTest : public ::testing::Test {
 protected:
  MessengerTest() {
    sender.attach(1, &there);
    receiver.attach(0, &back);
  }
  // Sends copies of `bytes` until one has to wait for its receive; returns how many did not.
  std::size_t fill(const Bytes& bytes) {
    std::size_t count = 0;
    for (last = sender.send(1, {1}, bytes); last.done(); last = sender.send(1, {1}, bytes)) ++count;
    return count;
  }
  Bytes receive(net::Tag tag, std::size_t size) {
    Bytes got(size);
    const Work work = receiver.recv(0, tag, got);
    EXPECT_TRUE(work.done());
    work.wait();
    return got;
  }

  std::shared_ptr<Waiter> waiter = RealWaiter::make();
  Messenger sender{0, 2, waiter}, receiver{1, 2, waiter};
  Wire there{receiver, 0}, back{sender, 1};
  Work last;
};

TEST_F(MessengerTest, UnexpectedMessagesAreBoundedAndStandInNobodysWay) {
  const Bytes many(kEagerLimit, std::byte{7});
  const std::size_t count = fill(many);
  EXPECT_EQ(count, kUnexpectedLimit / (kEagerLimit + kMessageCost));
  const Bytes awaited(kEagerLimit, std::byte{3});
  const Work behind = sender.send(1, {2}, awaited);
  EXPECT_FALSE(behind.done());
  EXPECT_EQ(receive({2}, kEagerLimit), awaited);
  EXPECT_TRUE(behind.done());
  for (std::size_t i = 0; i <= count; ++i) ASSERT_EQ(receive({1}, kEagerLimit), many) << i;
  EXPECT_TRUE(last.done());
  EXPECT_FALSE(sender.pending());
  EXPECT_FALSE(receiver.pending());
}

TEST_F(MessengerTest, EmptyMessagesAreBoundedToo) {
  const std::size_t count = fill({});
  EXPECT_EQ(count, kUnexpectedLimit / kMessageCost);
  for (std::size_t i = 0; i <= count; ++i) receive({1}, 0);
  EXPECT_TRUE(last.done());
  EXPECT_FALSE(sender.pending());
  EXPECT_FALSE(receiver.pending());
}

TEST_F(MessengerTest, WhatIsTakenMakesRoom) {
  const Bytes many(kEagerLimit);
  const std::size_t count = fill(many);
  for (std::size_t i = 0; i < count / 2; ++i) receive({1}, kEagerLimit);
  EXPECT_FALSE(last.done()) << "the messages before it are not taken yet";
  std::size_t more = 0;
  while (sender.send(1, {1}, many).done()) ++more;
  EXPECT_GE(more, count / 4);
  // If every message is taken, there is always room.
  for (std::size_t i = 0; i < count - count / 2 + 1 + more + 1; ++i) receive({1}, kEagerLimit);
  for (std::size_t i = 0; i < 3 * count; ++i) {
    ASSERT_TRUE(sender.send(1, {1}, many).done()) << i;
    receive({1}, kEagerLimit);
  }
}

TEST_F(MessengerTest, MessagesToOneselfAreBoundedToo) {
  const Bytes many(kEagerLimit);
  std::size_t count = 0;
  Work own = sender.send(0, {1}, many);
  for (; own.done(); own = sender.send(0, {1}, many)) ++count;
  EXPECT_EQ(count, kUnexpectedLimit / (kEagerLimit + kMessageCost));
  Bytes got(kEagerLimit);
  for (std::size_t i = 0; i <= count; ++i) ASSERT_TRUE(sender.recv(0, {1}, got).done()) << i;
  EXPECT_TRUE(own.done());
}

std::string why(const Work& work) {
  try {
    work.wait();
    return "no error";
  } catch (const PeerLost& error) {
    return error.what();
  }
}

// A link whose network fails in the middle of a send, as MPI's may.
struct FailingLink final : net::Link {
  explicit FailingLink(Messenger& a_messenger) : messenger(a_messenger) {}
  bool try_send(const Frame&, std::span<const std::byte>) override {
    if (broken)
      messenger.abort(std::make_exception_ptr(PeerLost("the network is broken", {.peer = 1})));
    return false;
  }
  std::size_t try_stream(std::size_t, const net::Piece&) override { return 0; }
  Messenger& messenger;
  bool broken = false;
};

TEST(Messenger, SendsThatBreakTheNetworkFail) {
  for (const bool queued : {false, true}) {
    Messenger messenger(0, 2, RealWaiter::make());
    FailingLink link(messenger);
    messenger.attach(1, &link);
    link.broken = !queued;
    const Work work = messenger.send(1, {1}, Bytes(10));
    if (queued) {
      EXPECT_FALSE(work.done());
      link.broken = true;
      messenger.pump(1);
    }
    ASSERT_TRUE(work.done()) << queued;
    EXPECT_THAT(why(work), HasSubstr("the network is broken"));
    EXPECT_FALSE(messenger.pending());
  }
}

TEST_F(MessengerTest, WhoSendsMoreThanThereIsRoomForIsLost) {
  Bytes got(1);
  const Work work = receiver.recv(0, {2}, got);
  const Bytes many(kEagerLimit);
  for (std::size_t bytes = 0; bytes <= kUnexpectedLimit; bytes += kEagerLimit) {
    receiver.on_eager(0, {1}, many);
  }
  ASSERT_TRUE(work.done());
  EXPECT_THAT(why(work), HasSubstr("it sent more than there was room for"));
}

TEST_F(MessengerTest, WhoMakesRoomForMoreThanWasSentIsLost) {
  Bytes got(1);
  const Work work = sender.recv(1, {2}, got);
  EXPECT_TRUE(sender.send(1, {1}, Bytes(100)).done());
  sender.on_control(1, {FrameKind::Room, 0, 0, 100 + kMessageCost});
  EXPECT_FALSE(work.done());
  sender.on_control(1, {FrameKind::Room, 0, 0, 1});
  ASSERT_TRUE(work.done());
  EXPECT_THAT(why(work), HasSubstr("it made room for more than was sent"));
}

// Rank 0 is killed, rank 1 gives up because of it and leaves, rank 2 sees only rank 1 leave.
TEST_F(MessengerTest, WhoGivesUpTellsWhichRankWasLostFirst) {
  Messenger second{1, 3, waiter}, third{2, 3, waiter};
  Wire forth{third, 1}, unused{second, 2};
  second.attach(2, &forth);
  third.attach(1, &unused);
  Bytes bytes(8);
  const Work waits = third.recv(1, {1}, bytes), given_up = second.recv(0, {1}, bytes);
  second.lose(0, "its process has ended");
  std::exception_ptr error;
  given_up.on_settled([&](const std::exception_ptr& why) { error = why; });
  second.abort(error);
  EXPECT_FALSE(waits.done());  // rank 1 may have sent what it waits for
  third.lose(1, "its process has ended");
  for (const Work& failed : {waits, third.send(1, {1}, bytes)}) {
    try {
      failed.wait();
      ADD_FAILURE() << "the message arrived";
    } catch (const PeerLost& lost) {
      EXPECT_EQ(lost.peer(), 0);
      EXPECT_THAT(lost.what(), HasSubstr("rank 0 is gone: rank 1 has given up because of it"));
    }
  }
}

// The same among ranks that errors call 4, 5 and 6.
TEST_F(MessengerTest, RanksWithOtherNamesAreToldTheNameOfTheOneThatWasLostFirst) {
  const std::vector<int> names = {4, 5, 6};
  Messenger second{1, 3, waiter, names}, third{2, 3, waiter, names};
  Wire forth{third, 1}, unused{second, 2};
  second.attach(2, &forth);
  third.attach(1, &unused);
  Bytes bytes(8);
  const Work waits = third.recv(1, {1}, bytes), given_up = second.recv(0, {1}, bytes);
  second.lose(0, "its process has ended");
  std::exception_ptr error;
  given_up.on_settled([&](const std::exception_ptr& why) { error = why; });
  second.abort(error);
  third.lose(1, "its process has ended");
  try {
    waits.wait();
    ADD_FAILURE() << "the message arrived";
  } catch (const PeerLost& lost) {
    EXPECT_EQ(lost.rank(), 6);
    EXPECT_EQ(lost.peer(), 4);
    EXPECT_THAT(lost.what(), HasSubstr("rank 4 is gone: rank 5 has given up because of it"));
  }
}

TEST_F(MessengerTest, AWaitThatEndsNamesTheRankAsErrorsDo) {
  Messenger second{1, 3, waiter, {4, 5, 6}};
  Bytes bytes(8);
  try {
    second.recv(2, {1}, bytes).wait(Deadline::in(Duration::zero()));
    ADD_FAILURE() << "the message arrived";
  } catch (const TimeoutError& error) {
    EXPECT_THAT(error.what(), HasSubstr("recv from 6"));
  }
}

TEST_F(MessengerTest, AnErrorOfAnotherKindNamesWhoLeft) {
  Bytes bytes(8);
  const Work waits = receiver.recv(0, {1}, bytes);
  sender.abort(std::make_exception_ptr(PeerLost("of another group", {.peer = 1})));
  receiver.lose(0, "its process has ended");
  try {
    waits.wait();
    ADD_FAILURE() << "the message arrived";
  } catch (const PeerLost& lost) {
    EXPECT_EQ(lost.peer(), 0);
  }
}

}  // namespace
}  // namespace trireme
