// Ring attention on several ranks, compared with attention in one process: values and gradients.
#include "trireme/layers/context/ring_attention.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>

#include <atomic>

#include "trireme/base/error.h"
#include "trireme/layers/context/positions.h"
#include "trireme/tensor/determinism.h"
#include "trireme/tensor/functions/functions.h"
#include "trireme/testing/run_ranks.h"

namespace trireme::parallel {
namespace {

struct Case {
  std::int64_t batch, length, heads, depth;
  bool causal;
};
struct Outcome {
  at::Tensor output, gradient;
};

at::Tensor upstream(const Case& c, at::ScalarType type) {
  const std::int64_t count = c.batch * c.length * c.heads * c.depth;
  return at::arange(count, at::kDouble)
      .mul(0.37)
      .sin()
      .view({c.batch, c.length, c.heads * c.depth})
      .to(type);
}

Outcome one_process(const Case& c, const at::Tensor& qkv) {
  const at::Tensor leaf = qkv.detach().clone().set_requires_grad(true);
  const at::Tensor output = tensor::attention(leaf, c.heads, c.causal);
  output.backward(upstream(c, qkv.scalar_type()));
  return {output.detach(), leaf.grad()};
}

Outcome on_ranks(int ranks, const Case& c, const at::Tensor& qkv, std::uint64_t seed = 1) {
  std::vector<at::Tensor> outputs(static_cast<std::size_t>(ranks)), gradients(outputs);
  testing::run_ranks(ranks,
                     [&](testing::RankContext& rank) {
                       const auto own = [&](const at::Tensor& whole) {
                         return cut_positions(whole, 1, rank.rank, ranks);
                       };
                       const at::Tensor leaf = own(qkv).detach().clone().set_requires_grad(true);
                       const at::Tensor output =
                           ring_attention(leaf, c.heads, c.causal, *rank.world);
                       output.backward(own(upstream(c, qkv.scalar_type())));
                       const auto at = static_cast<std::size_t>(rank.rank);
                       outputs[at] = output.detach();
                       gradients[at] = leaf.grad();
                     },
                     {.seed = seed});
  return {join_positions(outputs, 1), join_positions(gradients, 1)};
}

double relative(const at::Tensor& a, const at::Tensor& b) {
  const at::Tensor wide = b.to(at::kDouble);
  return ((a.to(at::kDouble) - wide).norm() / wide.norm()).item<double>();
}

void expect_as_one_process(int ranks, const Case& c, std::uint64_t seed) {
  at::manual_seed(seed);
  const at::Tensor qkv = 1.5 * at::randn({c.batch, c.length, 3 * c.heads * c.depth}, at::kDouble);
  const Outcome wanted = one_process(c, qkv);
  for (const auto& [type, tolerance] :
       {std::pair{at::kDouble, 1e-12}, {at::kFloat, 1e-5}, {at::kBFloat16, 2e-2}}) {
    const Outcome got = on_ranks(ranks, c, qkv.to(type), seed);
    const std::string where = std::string(c10::toString(type)) + ", " + std::to_string(ranks) +
                              " ranks, " + std::to_string(c.batch) + " x " +
                              std::to_string(c.length) + ", " + std::to_string(c.heads) +
                              " heads of " + std::to_string(c.depth) + (c.causal ? ", causal" : "");
    EXPECT_EQ(got.output.scalar_type(), type);
    EXPECT_LT(relative(got.output, wanted.output), tolerance) << where;
    EXPECT_LT(relative(got.gradient, wanted.gradient), tolerance) << where;
  }
}

class RingAttention : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { tensor::set_up_process({.kernel_threads = 1}); }
};

TEST_F(RingAttention, IsThatOfOneProcess) {
  std::uint64_t seed = 1;
  for (const int ranks : {1, 2, 3, 4, 5}) {
    for (const bool causal : {true, false}) {
      for (const std::int64_t chunk : {1, 3, 20}) {
        const std::int64_t batch = 1 + static_cast<std::int64_t>(seed % 3),
                           heads = 1 + static_cast<std::int64_t>(seed % 2),
                           depth = 2 + static_cast<std::int64_t>(seed % 5);
        expect_as_one_process(ranks, {batch, 2 * ranks * chunk, heads, depth, causal}, seed);
        ++seed;
      }
    }
  }
}

TEST_F(RingAttention, OfLongSequencesIsThatOfOneProcess) {
  expect_as_one_process(2, {1, 2048, 2, 16, true}, 7);
  expect_as_one_process(2, {1, 2048, 1, 16, false}, 8);
  expect_as_one_process(4, {1, 2048, 1, 16, true}, 9);
}

// A rank's order of additions does not depend on timing, so a second run has the bits of the first.
TEST_F(RingAttention, DoesNotDependOnWhoComesFirst) {
  const Case c{2, 24, 2, 5, true};
  at::manual_seed(1);
  const at::Tensor qkv = at::randn({c.batch, c.length, 3 * c.heads * c.depth});
  const Outcome first = on_ranks(3, c, qkv, 1);
  for (const std::uint64_t seed : {2, 3, 4}) {
    const Outcome again = on_ranks(3, c, qkv, seed);
    EXPECT_TRUE(at::equal(again.output, first.output)) << seed;
    EXPECT_TRUE(at::equal(again.gradient, first.gradient)) << seed;
  }
}

// Two attentions with open graphs at the same time, as in two layers; then without gradients.
TEST_F(RingAttention, StandsBesideOthers) {
  testing::run_ranks(2, [&](testing::RankContext& rank) {
    at::manual_seed(rank.rank);
    const at::Tensor leaf = at::randn({1, 4, 24}, at::kDouble).set_requires_grad(true);
    const at::Tensor both = ring_attention(leaf, 2, true, *rank.world) +
                            ring_attention(leaf * 2, 2, false, *rank.world);
    both.sum().backward();
    const at::NoGradGuard off;
    const at::Tensor again = ring_attention(leaf, 2, true, *rank.world) +
                             ring_attention(leaf * 2, 2, false, *rank.world);
    EXPECT_TRUE(at::equal(again, both));
    EXPECT_TRUE(leaf.grad().defined());
  });
}

// Ranks with different shapes get an error.
TEST_F(RingAttention, RefusesPartsOfOtherShapes) {
  std::atomic<int> refused = 0;
  testing::run_ranks(2, [&](testing::RankContext& rank) {
    try {
      ring_attention(at::zeros({1, 4 + 2 * rank.rank, 24}), 2, true, *rank.world);
    } catch (const MismatchError&) {
      ++refused;
    }
  });
  EXPECT_EQ(refused, 2);
}

}  // namespace
}  // namespace trireme::parallel
