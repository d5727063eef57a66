#include "trireme/plan/mixing.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <numbers>

#include "trireme/base/error.h"

namespace trireme {
namespace {

using ::testing::HasSubstr;

// Applies W_k to `x`, round by round.
std::vector<double> mixed(const plan::Mixing& mixing, std::vector<double> x, std::size_t rounds) {
  for (std::size_t k = 0; k < rounds; ++k) {
    std::vector<double> y(x.size(), 0.0);
    const plan::MixingRound& round = mixing.round(static_cast<std::int64_t>(k));
    for (std::size_t rank = 0; rank < x.size(); ++rank)
      for (const plan::MixingTerm& term : round.rows[rank])
        y[rank] += term.weight * x[static_cast<std::size_t>(term.from)];
    x = y;
  }
  return x;
}

TEST(Mixing, EveryGraphIsDoublyStochasticAndConnectedOnAnyNumberOfRanks) {
  for (const std::string& graph : plan::mixing_graphs()) {
    for (const int size : {1, 2, 3, 4, 5, 7, 8, 12, 16, 33, 100}) {
      for (const std::uint64_t seed : {1, 2, 3}) {
        const plan::Mixing mixing = plan::make_mixing(graph, size, seed);
        const plan::MixingFacts facts = plan::facts_of(mixing);
        EXPECT_TRUE(facts.doubly_stochastic) << graph << ", " << size;
        EXPECT_TRUE(facts.connected) << graph << ", " << size;
        EXPECT_LT(facts.left, 1) << graph << ", " << size;
        EXPECT_NO_THROW(plan::check(mixing));
      }
    }
  }
}

TEST(Mixing, GapsAreThoseOfTheLiterature) {
  // A ring's second eigenvalue is (1 + 2 cos(2 pi/N))/3.
  for (const int size : {4, 8, 16}) {
    const double second = (1 + 2 * std::cos(2 * std::numbers::pi / size)) / 3;
    EXPECT_NEAR(plan::facts_of(plan::make_mixing("ring", size, 1)).gap, 1 - second, 1e-9) << size;
  }
  // Ying et al. 2021, proposition 1: the static exponential graph of N = 2^k has the gap
  // 2/(1 + log2 N).
  for (const int size : {4, 8, 16, 32}) {
    EXPECT_NEAR(plan::facts_of(plan::make_mixing("exponential", size, 1)).gap,
                2.0 / (1 + std::log2(size)), 1e-9)
        << size;
  }
  // Same paper, lemma 1: one_peer on a power of two is at the mean after a period.
  for (const int size : {2, 4, 8, 32})
    EXPECT_EQ(plan::facts_of(plan::make_mixing("one_peer", size, 1)).left, 0) << size;
  EXPECT_GT(plan::facts_of(plan::make_mixing("one_peer", 6, 1)).left, 0.01);
}

TEST(Mixing, WhatIsLeftBoundsAnyStart) {
  for (const std::string& graph : plan::mixing_graphs()) {
    const plan::Mixing mixing = plan::make_mixing(graph, 7, 5);
    const double left = plan::facts_of(mixing).left;
    std::vector<double> x = {3, -1, 4, 1, -5, 9, -11};  // of mean 0
    const auto length = [](const std::vector<double>& v) {
      double sum = 0;
      for (const double one : v) sum += one * one;
      return std::sqrt(sum);
    };
    const std::vector<double> y = mixed(mixing, x, mixing.rounds.size());
    EXPECT_LE(length(y), left * length(x) + 1e-12) << graph;
    double mean = 0;
    for (const double one : y) mean += one;
    EXPECT_NEAR(mean, 0, 1e-12) << graph;
  }
}

TEST(Mixing, OneMessageARankInOnePeerAndInMatchings) {
  for (const char* graph : {"one_peer", "random"})
    EXPECT_EQ(plan::facts_of(plan::make_mixing(graph, 9, 1)).most_messages, 1) << graph;
  EXPECT_EQ(plan::facts_of(plan::make_mixing("ring", 9, 1)).most_messages, 2);
  EXPECT_EQ(plan::facts_of(plan::make_mixing("exponential", 9, 1)).most_messages, 4);
}

TEST(Mixing, RandomMatchingsAreTheSeeds) {
  const auto rounds = [](std::uint64_t seed) {
    return plan::make_mixing("random", 8, seed).rounds;
  };
  EXPECT_EQ(rounds(3)[0].rows, rounds(3)[0].rows);
  EXPECT_NE(rounds(3)[0].rows, rounds(4)[0].rows);
  EXPECT_NE(rounds(3)[0].rows, rounds(3)[1].rows);
  // With an odd number, one rank rests and averages only itself.
  int resting = 0;
  const plan::Mixing odd = plan::make_mixing("random", 5, 1);
  for (const auto& row : odd.rounds[0].rows) resting += row.size() == 1;
  EXPECT_EQ(resting, 1);
}

TEST(Mixing, WhatIsWrongIsSaid) {
  const auto refusal = [](const plan::Mixing& mixing) {
    try {
      plan::check(mixing);
    } catch (const ConfigError& error) {
      return std::string(error.what());
    }
    return std::string("nothing was thrown");
  };
  // Rows add up to 1, columns do not: rank 0's values would count too much.
  EXPECT_THAT(refusal({"mine", 2, {{{{{0, 1.0}}, {{0, 0.5}, {1, 0.5}}}}}}), HasSubstr("column"));
  // Two pairs that never exchange anything.
  EXPECT_THAT(refusal({"mine",
                       4,
                       {{{{{0, 0.5}, {1, 0.5}},
                          {{0, 0.5}, {1, 0.5}},
                          {{2, 0.5}, {3, 0.5}},
                          {{2, 0.5}, {3, 0.5}}}}}}),
              HasSubstr("is not connected"));
  EXPECT_THROW(plan::make_mixing("star", 4, 1), ConfigError);
  EXPECT_THROW(plan::make_mixing("ring", 0, 1), ConfigError);
  for (const std::string& graph : plan::mixing_graphs())
    EXPECT_THROW(plan::make_mixing(graph, 2'000'000'000, 1), ConfigError) << graph;
}

TEST(Mixing, IsDescribed) {
  EXPECT_EQ(plan::describe(plan::make_mixing("ring", 8, 1)),
            "ring of 8 ranks: at most 2 messages a rank, doubly stochastic, spectral gap 0.195 a "
            "round");
  EXPECT_EQ(plan::describe(plan::make_mixing("one_peer", 8, 1)),
            "one_peer of 8 ranks: at most 1 message a rank, a period of 3 rounds, doubly "
            "stochastic, at the mean after 3 rounds");
}

}  // namespace
}  // namespace trireme
