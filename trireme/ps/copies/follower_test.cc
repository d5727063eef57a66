#include "trireme/ps/copies/follower.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "trireme/net/sim/sim_channels.h"

namespace trireme::inline v0::ps::follower_test {
namespace {

using namespace std::chrono_literals;

// It has greeted, and reads no more.
TEST(Follower, WorkersWaitForABackupThatIsTooFarBehind) {
  net::SimNetwork network(2);
  net::SimChannels channels(network);
  bool ended = false;
  network.run([&](int rank) {
    const auto waiter = network.waiter(rank);
    if (rank == 1) {
      const auto acceptor = channels.listen(1);
      std::shared_ptr<net::Channel> channel;
      acceptor->accept(channel).wait();
      net::ChannelFrame frame;
      channel->receive(frame).wait();
      const std::string head = to_text(Heard{});
      channel->send(std::as_bytes(std::span(head))).wait();
      waiter->wait_until([&] { return ended; }, TimePoint::max());
      return;
    }
    waiter->sleep(1ms);  // rank 1 listens
    Service service(0, [](int, const Reply&, std::span<const std::byte>) {});
    Follower follower(waiter, {.dial =
                                   [&](auto to) {
                                     *to = channels.dial(0, "sim:1");
                                     return Work();
                                   },
                               .most_behind_bytes = 250});
    for (int look = 0; look < 100; ++look) {
      follower.poll({}, service);
      waiter->sleep(1ms);
    }
    const std::vector<std::byte> memory(100);
    for (std::uint64_t index = 1; index <= 4; ++index) {
      follower.send({.at = {.term = 1, .index = index},
                     .client = 0,
                     .request = Request{.ask = Ask::Push},
                     .memory = memory});
      EXPECT_EQ(follower.required(), index > 2) << index;
    }
    ended = true;
    network.waiter(1)->wake();
  });
}

}  // namespace
}  // namespace trireme::inline v0::ps::follower_test
