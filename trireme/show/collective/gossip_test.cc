#include "trireme/show/collective/gossip.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "trireme/base/error.h"
#include "trireme/plan/mixing.h"
#include "trireme/show/drawing/legible_test.h"

namespace trireme {
namespace {

using ::testing::HasSubstr;

// The recording does not depend on the network, and agrees with the matrices.
TEST(ShowGossip, RecordsWhatTheMatricesSay) {
  for (const std::string& graph : plan::mixing_graphs()) {
    for (const int ranks : {2, 3, 5, 8}) {
      const show::GossipRecording one = show::record_gossip({.graph = graph, .ranks = ranks});
      const plan::Mixing mixing = plan::make_mixing(graph, ranks, 1);
      for (std::size_t k = 1; k < one.rounds.size(); ++k) {
        const plan::MixingRound& round = mixing.round(static_cast<std::int64_t>(k) - 1);
        std::vector<show::GossipMessage> messages;
        for (int rank = 0; rank < ranks; ++rank) {
          double expected = 0;
          for (const auto& [from, weight] : round.rows[static_cast<std::size_t>(rank)]) {
            expected += weight * one.rounds[k - 1].values[static_cast<std::size_t>(from)];
            if (from != rank) messages.push_back({from, rank, sizeof(double)});
          }
          EXPECT_DOUBLE_EQ(one.rounds[k].values[static_cast<std::size_t>(rank)], expected);
        }
        std::sort(messages.begin(), messages.end());
        EXPECT_EQ(one.rounds[k].messages, messages) << graph;
      }
      const std::vector<double>& last = one.rounds.back().values;
      EXPECT_NEAR(std::accumulate(last.begin(), last.end(), 0.0) / ranks, one.mean, 1e-12);
      EXPECT_LT(one.farthest(one.rounds.size() - 1), one.farthest(0) / 3) << graph << ranks;
    }
  }
}

TEST(ShowGossip, TextAndPicturesSayIt) {
  const show::GossipRecording recording = show::record_gossip({.graph = "one_peer", .ranks = 4});
  const std::string text = show::text_of(recording);
  EXPECT_THAT(text, HasSubstr("0>1 1>2 2>3 3>0"));
  EXPECT_THAT(text, HasSubstr("8 messages in 2 rounds"));
  for (const int ranks : {3, 8, 24}) {
    const show::GossipRecording drawn = show::record_gossip({.graph = "ring", .ranks = ranks});
    expect_legible(show::svg_of(drawn));
    EXPECT_THAT(show::html_of(drawn), HasSubstr("round 1"));
  }
}

TEST(ShowGossip, DistancesFromTenOnAreWhole) {
  const show::GossipRecording recording =
      show::record_gossip({.graph = "ring", .ranks = 24, .rounds = 1});
  EXPECT_THAT(show::round_text(recording, 0), HasSubstr("   farthest 11.500\n"));
}

}  // namespace
}  // namespace trireme
