#include "trireme/ps/server/team.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <memory>
#include <numeric>
#include <optional>
#include <random>
#include <vector>

#include "trireme/base/waiter/real_waiter.h"
#include "trireme/ps/copy_for_reader.h"
#include "trireme/ps/server/shard.h"

namespace trireme::team_test {
namespace {

using ps::Team;

// Sizes around those at which helpers take part.
constexpr std::size_t kSizes[] = {0, 1, 4096, 4097, 1 << 19, (1 << 19) + 5, 3'000'001};

TEST(Team, GoesOverEachElementOnceInPartsThatBeginWithChunks) {
  const std::shared_ptr<RealWaiter> waiter = RealWaiter::make(Duration::zero());
  for (const int threads : {1, 2, 5}) {
    Team team(waiter, threads);
    for (const std::size_t size : kSizes) {
      std::vector<std::uint8_t> visits(size);
      for (int round = 0; round < 20; ++round)
        team.run(size, [&](std::size_t begin, std::size_t end) {
          EXPECT_EQ(begin % 4096, 0u);
          for (std::size_t i = begin; i < end; ++i) ++visits[i];
        });
      EXPECT_EQ(std::count(visits.begin(), visits.end(), 20), static_cast<std::ptrdiff_t>(size))
          << threads << " threads, " << size;
    }
  }
}

TEST(Team, CopiesBytesOfAnyNumber) {
  const std::shared_ptr<RealWaiter> waiter = RealWaiter::make(Duration::zero());
  Team team(waiter, 3);
  for (const std::size_t size : kSizes) {
    std::vector<std::uint8_t> from(8 * size + 3), to(from.size() + 1, 99);
    std::iota(from.begin(), from.end(), std::uint8_t{1});
    team.copy(to.data(), from.data(), from.size());
    EXPECT_TRUE(std::equal(from.begin(), from.end(), to.begin())) << size;
    EXPECT_EQ(to.back(), 99);
  }
}

// Past the caches or not, at any place in a line of 64 bytes.
TEST(CopyForReader, CopiesTheseBytesAndNoOthers) {
  std::vector<std::uint8_t> from(1000);
  std::iota(from.begin(), from.end(), std::uint8_t{1});
  for (const std::size_t whole : {std::size_t{0}, std::size_t{64} << 20})
    for (const std::size_t size : {0, 1, 63, 64, 65, 127, 128, 200, 900})
      for (std::size_t at = 0; at < 70; ++at) {
        std::vector<std::uint8_t> to(1000, 0), expected(1000, 0);
        std::copy_n(from.begin() + 3, size, expected.begin() + static_cast<std::ptrdiff_t>(at));
        ps::copy_for_reader(to.data() + at, from.data() + 3, size, whole);
        ASSERT_EQ(to, expected) << size << " bytes at " << at;
      }
}

// A model of two parameters, and what a shard of it makes of gradients.
struct Outcome {
  std::vector<std::byte> weights;
  std::vector<double> squares;
  std::optional<std::string> refused;
};
Outcome updated(const OptimizerOptions& optimizer, const Spread& spread) {
  const ps::ServedModel model(
      {{.name = "w", .shape = {1'300'007}}, {.name = "b", .shape = {70'000}}}, 1);
  ps::Shard shard(model, 0, optimizer, spread);
  const std::size_t bytes = shard.bytes();
  std::vector<std::vector<std::byte>> terms(3, std::vector<std::byte>(bytes));
  std::mt19937 random(7);
  for (std::vector<std::byte>& term : terms) {
    auto* numbers = reinterpret_cast<float*>(term.data());
    for (std::size_t i = 0; i < bytes / sizeof(float); ++i)
      numbers[i] = static_cast<float>(random()) * 1e-9f - 2;
  }
  Outcome outcome;
  shard.fold(std::vector<ps::Terms>{{{{0, 1}}, terms[0]}, {{{1, 1}}, terms[1]}}, 2);
  outcome.squares = shard.chunk_squares();
  shard.apply(0.01, 0.5);
  std::vector<std::byte> out(bytes);
  EXPECT_EQ(shard.push(terms[2], 0.01, 1, {}, 0, {}, {out}), std::nullopt);
  shard.updates().finish();
  for (const ps::ServedModel::Slice& slice : model.slices(0)) {
    const auto weights = shard.weights().subspan(slice.offset, slice.bytes());
    EXPECT_TRUE(std::equal(weights.begin(), weights.end(), out.begin() + slice.offset));
  }
  reinterpret_cast<float*>(terms[2].data())[1'300'000] = std::numeric_limits<float>::infinity();
  outcome.refused = shard.push(terms[2], 0.01, 1);
  outcome.weights.assign(shard.weights().begin(), shard.weights().end());
  return outcome;
}

TEST(Team, ChangesNoBitOfAServersWork) {
  const std::shared_ptr<RealWaiter> waiter = RealWaiter::make(Duration::zero());
  Team team(waiter, 3);
  for (const OptimizerOptions& optimizer :
       {OptimizerOptions(AdamW{}), OptimizerOptions(Sgd{.momentum = 0.9})}) {
    const Outcome alone = updated(optimizer, in_one_part),
                  spread = updated(optimizer, team.spread());
    EXPECT_EQ(alone.weights, spread.weights);
    EXPECT_EQ(alone.squares, spread.squares);
    EXPECT_EQ(alone.refused, "w");
    EXPECT_EQ(spread.refused, "w");
  }
}

TEST(Team, HelpersThatNobodyNeededEnd) {
  const std::shared_ptr<RealWaiter> waiter = RealWaiter::make(Duration::zero());
  for (int i = 0; i < 50; ++i) Team unused(waiter, 4);
}

}  // namespace
}  // namespace trireme::team_test
