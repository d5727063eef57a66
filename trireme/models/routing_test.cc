#include "trireme/models/routing.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

namespace trireme::models {
namespace {

std::vector<std::int64_t> numbers(const at::Tensor& tensor) {
  const at::Tensor packed = tensor.contiguous();
  return {packed.data_ptr<std::int64_t>(), packed.data_ptr<std::int64_t>() + packed.numel()};
}
using Numbers = std::vector<std::int64_t>;

TEST(Routing, TakesTheMostProbableAndOfEqualOnesTheFirst) {
  const at::Tensor probabilities =
      at::tensor({0.1, 0.4, 0.4, 0.1, 0.25, 0.25, 0.25, 0.25, 0.0, 0.1, 0.2, 0.7}).view({1, 3, 4});
  const Routing routing = route(probabilities, 2, 3);
  EXPECT_EQ(numbers(routing.chosen), (Numbers{1, 2, 0, 1, 3, 2}));
  EXPECT_EQ(numbers(routing.load), (Numbers{1, 2, 2, 1}));
  EXPECT_EQ(routing.dropped, 0);
  EXPECT_EQ(routing.counts, (Numbers{1, 2, 2, 1}));
  // Expert 0: token 1's first choice; 1: token 0's first, token 1's second; 2: token 0's and 2's
  // second; 3: token 2's first.
  EXPECT_EQ(numbers(routing.places), (Numbers{2, 0, 3, 1, 5, 4}));
}

TEST(Routing, FirstChoicesHavePlacesBeforeSecondOnes) {
  // Expert 1 is the second choice of tokens 0 and 1 and the first of token 2; its capacity is two.
  const at::Tensor probabilities = at::tensor({0.6, 0.4, 0.6, 0.4, 0.3, 0.7}).view({1, 3, 2});
  const Routing routing = route(probabilities, 2, 2);
  EXPECT_EQ(routing.counts, (Numbers{2, 2}));
  EXPECT_EQ(routing.dropped, 2);
  // Expert 0: the first choices of tokens 0 and 1; 1: token 2's first, token 0's second.
  EXPECT_EQ(numbers(routing.places), (Numbers{0, 2, 4, 1}));
  EXPECT_EQ(numbers(routing.load), (Numbers{3, 3}));
}

TEST(Routing, SequencesAreByThemselves) {
  at::manual_seed(2);
  const at::Tensor probabilities = at::randn({4, 10, 6}).softmax(-1);
  const Routing all = route(probabilities, 2, 3);
  std::int64_t dropped = 0;
  std::multiset<std::int64_t> places;
  for (std::int64_t b = 0; b < 4; ++b) {
    const Routing alone = route(probabilities.narrow(0, b, 1), 2, 3);
    dropped += alone.dropped;
    for (const std::int64_t place : numbers(alone.places)) places.insert(b * 20 + place);
    EXPECT_TRUE(at::equal(all.load[b], alone.load[0]));
  }
  EXPECT_GT(dropped, 0) << "nothing was tested";
  EXPECT_EQ(all.dropped, dropped);
  const Numbers got = numbers(all.places);
  EXPECT_EQ(std::multiset<std::int64_t>(got.begin(), got.end()), places);
  EXPECT_EQ(static_cast<std::int64_t>(got.size()) + dropped, 4 * 10 * 2);
  for (const std::int64_t count : all.counts) EXPECT_LE(count, 4 * 3);
}

TEST(Routing, CapacityIsAPartOfTheSequence) {
  EXPECT_EQ(capacity_of(64, 8, 2, 1.0), 16);
  EXPECT_EQ(capacity_of(64, 8, 2, 1.25), 20);
  EXPECT_EQ(capacity_of(10, 8, 1, 1.0), 2) << "rounded up";
  EXPECT_EQ(capacity_of(10, 8, 2, 1.2), 3) << "1.2 x 20 / 8 is 3";
  EXPECT_EQ(capacity_of(10, 2, 2, 4.0), 10) << "a token comes once";
  EXPECT_EQ(capacity_of(10, 2, 2, 1e300), 10) << "nothing is dropped";
}

TEST(Routing, ExpertsComputeFewShapes) {
  EXPECT_EQ(computed_rows(0), 16) << "other ranks wait for its sums";
  EXPECT_EQ(computed_rows(1), 16);
  EXPECT_EQ(computed_rows(16), 16);
  EXPECT_EQ(computed_rows(17), 32);
}

}  // namespace
}  // namespace trireme::models
