// A launcher's orders to the process of its coordinator, which is away.
#include "trireme/launch/coordinator/coordinator_orders.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <memory>
#include <string>
#include <vector>

#include "trireme/rendezvous/coordinator/door.h"

namespace trireme::launch::coordinator_orders_test {
namespace {

using ::testing::ElementsAre;

// The kinds of the orders that a process gets when it comes, after its setup.
std::vector<std::string> told_to_a_process(CoordinatorOrders& orders) {
  int ends[2];
  EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
  const Descriptor theirs(ends[1]);
  CoordinatorSetup setup;
  setup.options.listener =
      std::make_shared<net::Listener>(rendezvous::listen("127.0.0.1", /*port=*/0));
  orders.connect(Descriptor(ends[0]), setup);
  orders.disconnect();
  std::string bytes;
  char some[4096];
  for (ssize_t got = 1; got > 0;) {
    got = ::read(theirs.get(), some, sizeof some);
    if (got > 0) bytes.append(some, static_cast<std::size_t>(got));
  }
  std::vector<std::string> kinds;
  for (Message message; take_message(bytes, message);)
    if (message.kind != "open") kinds.push_back(message.kind + " " + message.field(1));
  return kinds;
}

// Ctrl-Z ends the wait for the answer.
TEST(CoordinatorOrders, AChangeWhoseAnswerNobodyWaitsForIsNotLost) {
  CoordinatorOrders orders([] { return true; });
  EXPECT_FALSE(orders.ask({"forget", 1, {"", "one"}}));
  EXPECT_FALSE(orders.ask({"regroup", -1, {"", "first"}}));
  EXPECT_FALSE(orders.ask({"first-failure", -1, {"", ""}}));
  EXPECT_THAT(told_to_a_process(orders), ElementsAre("forget one", "regroup first"));
  EXPECT_FALSE(orders.ask({"regroup", -1, {"", "second"}}));
  EXPECT_THAT(told_to_a_process(orders), ElementsAre("forget one", "regroup second"))
      << "a process must not go back to earlier ranks";
  orders.drop_about(1);
  EXPECT_THAT(told_to_a_process(orders), ElementsAre("regroup second"));
}

}  // namespace
}  // namespace trireme::launch::coordinator_orders_test
