// Tests of the events that CommunicatorOptions::on_run receives in a real run.
#include "trireme/comm/calls/run_event.h"

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "trireme/comm/simulate.h"

namespace trireme {
namespace {

using comm::RunEvent;
using Kind = RunEvent::Kind;

struct Told {
  Kind kind;
  int chunk, peer;
  kernel::LeafRange node;
  std::size_t bytes;
  std::int64_t first;  // the first element; 0 if there is no data
};

std::vector<std::vector<Told>> watch(int size, const std::string& algorithm, std::size_t count) {
  std::vector<std::vector<Told>> told(static_cast<std::size_t>(size));
  comm::SimulationOptions options;
  options.world.algorithm = algorithm;
  options.prepare = [&](comm::SimulatedRank& rank, comm::CommunicatorOptions& world) {
    world.on_run = [&list = told[static_cast<std::size_t>(rank.rank)]](const RunEvent& event) {
      std::int64_t first = 0;
      if (!event.data.empty()) std::memcpy(&first, event.data.data(), sizeof first);
      list.push_back({event.kind, event.chunk, event.peer, event.node, event.data.size(), first});
    };
  };
  comm::simulate(size, options, [&](comm::SimulatedRank& rank) {
    std::vector<std::int64_t> values(count, std::int64_t{1} << rank.rank);
    rank.world->all_reduce(Buffer::of(std::span(values)), Sum).wait();
    EXPECT_EQ(values.front(), (1 << size) - 1);
  });
  return told;
}

TEST(RunEvent, TellsARingOfTwoAsItHappens) {
  const auto told = watch(2, "ring", 16);  // two chunks of one cache line each
  const std::vector<Kind> kinds = [&] {
    std::vector<Kind> all;
    for (const Told& one : told[0]) all.push_back(one.kind);
    return all;
  }();
  EXPECT_EQ(kinds, (std::vector<Kind>{Kind::Begin, Kind::Hold, Kind::Hold, Kind::RoundEnd,  //
                                      Kind::Send, Kind::Receive, Kind::Add,                 //
                                      Kind::Hold, Kind::Hold, Kind::RoundEnd,               //
                                      Kind::Send, Kind::Receive,                            //
                                      Kind::Hold, Kind::Hold, Kind::RoundEnd,               //
                                      Kind::Out, Kind::Out, Kind::End}));
  EXPECT_EQ(told[0][0].chunk, 2);
  EXPECT_EQ(told[0][4].bytes, 64u);  // sends chunk 0 to rank 1
  EXPECT_EQ(told[0][4].chunk, 0);
  EXPECT_EQ(told[0][4].peer, 1);
  EXPECT_EQ(told[0][4].first, 1);
  EXPECT_EQ(told[0][5].chunk, 1);
  EXPECT_EQ(told[0][5].first, 2);  // rank 1's leaf
  EXPECT_EQ(told[0][6].first, 3);  // the sum
  EXPECT_EQ(told[0][6].node, (kernel::LeafRange{0, 2}));
  EXPECT_EQ(told[0].back().kind, Kind::End);
}

TEST(RunEvent, IsSilentWhereTheHeaderCarriesTheData) {
  EXPECT_TRUE(watch(3, "ring", 1)[0].empty());
}

}  // namespace
}  // namespace trireme
