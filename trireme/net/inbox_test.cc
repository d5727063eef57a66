// The receives and messages of one peer find each other by their tags, without a network.
#include "trireme/net/inbox.h"

#include <gtest/gtest.h>

#include <vector>

#include "trireme/base/waiter/real_waiter.h"

namespace trireme::net::inbox_test {
namespace {

using Bytes = std::vector<std::byte>;

class InboxTest : public ::testing::Test {
 protected:
  Inbox::Receive receive(Tag tag, std::span<std::byte> bytes) {
    return {tag, bytes, WorkSource(waiter_)};
  }
  const std::shared_ptr<Waiter> waiter_ = RealWaiter::make();
  Inbox inbox_;
};

TEST_F(InboxTest, TheOldestWithATagComesFirst) {
  Bytes first(1), second(1), other(1);
  inbox_.post(receive({1}, first));
  inbox_.post(receive({2}, other));
  inbox_.post(receive({1}, second));
  EXPECT_EQ(inbox_.take_receive({1})->bytes.data(), first.data());
  EXPECT_EQ(inbox_.take_receive({1})->bytes.data(), second.data());
  EXPECT_FALSE(inbox_.take_receive({1}));

  inbox_.keep({1}, Bytes(3));
  inbox_.keep({2}, Bytes(4));
  inbox_.keep({1}, 100'000, /*send_id=*/7);
  EXPECT_EQ(inbox_.take_message({1})->bytes, Bytes(3));
  EXPECT_EQ(inbox_.take_message({1})->send_id, 7u);
  EXPECT_FALSE(inbox_.take_message({1}));
}

TEST_F(InboxTest, OnlyBytesThatAreHereNeedRoom) {
  const Bytes half(kUnexpectedLimit / 2 - kMessageCost);
  EXPECT_TRUE(inbox_.keep({1}, half));
  EXPECT_TRUE(inbox_.keep({1}, half));
  EXPECT_FALSE(inbox_.keep({1}, Bytes()));
  inbox_.keep({2}, kUnexpectedLimit, /*send_id=*/1);
  inbox_.take_message({2});
  EXPECT_FALSE(inbox_.keep({1}, Bytes()));
  inbox_.take_message({1});
  EXPECT_TRUE(inbox_.keep({1}, half));
}

TEST_F(InboxTest, BytesArriveWithinTheirReceiveOnly) {
  Bytes bytes(10);
  const std::uint32_t id = inbox_.begin(receive({1}, bytes));
  EXPECT_EQ(inbox_.destination(id, 6, 4), bytes.data() + 6);
  EXPECT_EQ(inbox_.destination(id, 6, 5), nullptr);
  EXPECT_EQ(inbox_.destination(id, 11, 0), nullptr);
  EXPECT_EQ(inbox_.destination(id + 1, 0, 1), nullptr);
  EXPECT_FALSE(inbox_.arrived(id, 4));
  EXPECT_EQ(inbox_.destination(id, std::nullopt, 6), bytes.data() + 4);
  EXPECT_EQ(inbox_.destination(id, 0, 7), nullptr) << "more than is left";
  EXPECT_TRUE(inbox_.arrived(id, 6));
  EXPECT_EQ(inbox_.destination(id, 0, 1), nullptr) << "all of it is here";
}

TEST_F(InboxTest, OfALostPeerOnlyBytesThatAreHereRemain) {
  Bytes bytes(10);
  inbox_.begin(receive({1}, bytes));
  inbox_.post(receive({2}, bytes));
  inbox_.keep({3}, bytes);
  inbox_.keep({4}, 100'000, /*send_id=*/0);
  EXPECT_EQ(inbox_.close(/*keep_messages=*/true).size(), 2u);
  EXPECT_FALSE(inbox_.take_receive({2}));
  EXPECT_FALSE(inbox_.take_message({4}));
  EXPECT_TRUE(inbox_.take_message({3}));
  inbox_.keep({3}, bytes);
  EXPECT_TRUE(inbox_.close(/*keep_messages=*/false).empty());
  EXPECT_FALSE(inbox_.take_message({3}));
}

}  // namespace
}  // namespace trireme::net::inbox_test
