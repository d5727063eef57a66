#include "trireme/net/sim/sim_channels.h"

#include <gtest/gtest.h>

#include <array>

namespace trireme::inline v0::net {
namespace {

using namespace std::chrono_literals;

// Two ranks send 1,000 bytes each to a third, which answers both at once.
std::array<Duration, 2> times_of_two_callers(bool one_link) {
  SimNetwork network(3, {.jitter = Duration(0), .one_link = true});
  SimChannels channels(
      network,
      {.alpha = 10us, .bytes_per_second = 1e7, .jitter = Duration(0), .one_link = one_link});
  std::array<Duration, 2> took{};
  const std::vector<std::byte> bytes(1000);
  network.run([&](int rank) {
    const auto waiter = network.waiter(rank);
    if (rank == 2) {
      const auto acceptor = channels.listen(rank);
      std::array<std::shared_ptr<Channel>, 2> callers;
      for (auto& caller : callers) acceptor->accept(caller).wait();
      std::array<ChannelFrame, 2> frames;
      for (std::size_t i = 0; i < 2; ++i) callers[i]->receive(frames[i]).wait();
      for (const auto& caller : callers) caller->send({}, bytes).wait();
      waiter->sleep(1s);  // closing would overtake nothing, but ends the channels
      return;
    }
    waiter->sleep(1ms);  // rank 2 listens
    const auto channel = channels.dial(rank, "sim:2");
    const TimePoint begin = waiter->now();
    channel->send({}, bytes).wait();
    ChannelFrame frame;
    channel->receive(frame).wait();
    took[static_cast<std::size_t>(rank)] = waiter->now() - begin;
  });
  return took;
}

// A message takes 10 us and 100 us of its bytes. Over one link, the second follows the first both
// ways.
TEST(SimChannels, FramesOfOneLinkFollowOneAnother) {
  const auto apart = times_of_two_callers(false), together = times_of_two_callers(true);
  EXPECT_EQ(apart, (std::array<Duration, 2>{220us, 220us}));
  EXPECT_EQ(std::min(together[0], together[1]), 320us);
  EXPECT_EQ(std::max(together[0], together[1]), 420us);
}

}  // namespace
}  // namespace trireme::inline v0::net
