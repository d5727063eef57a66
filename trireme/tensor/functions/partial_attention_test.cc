// Attention over parts of the keys against attention over all of them at once.
#include "trireme/tensor/functions/partial_attention.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>

#include <optional>

#include "trireme/tensor/autocast.h"
#include "trireme/tensor/determinism.h"
#include "trireme/tensor/flat_math.h"
#include "trireme/tensor/functions/functions.h"

namespace trireme::tensor::partial_attention_test {
namespace {

constexpr std::int64_t kBatch = 2, kHeads = 2, kWidth = 12;

double relative(const at::Tensor& a, const at::Tensor& b) {
  const at::Tensor wide = b.to(at::kDouble);
  return ((a.to(at::kDouble) - wide).norm() / wide.norm()).item<double>();
}

struct Parts {
  at::Tensor output, dqkv;
};

// Attention over the whole [B, T, 3C] in fp64, under autograd.
Parts whole(const at::Tensor& qkv, const at::Tensor& gradient, bool causal) {
  const at::Tensor leaf = qkv.to(at::kDouble).detach().clone().set_requires_grad(true);
  const at::Tensor output = attention(leaf, kHeads, causal);
  output.backward(gradient.to(at::kDouble));
  return {output.detach(), leaf.grad()};
}

// Two parts of `length` each; the queries of each see the keys of both, as far as the mask allows.
Parts in_parts(const at::Tensor& qkv, const at::Tensor& gradient, bool causal) {
  const at::NoGradGuard off;
  const std::int64_t length = qkv.size(1) / 2;
  const at::Tensor part[] = {qkv.narrow(1, 0, length).contiguous(),
                             qkv.narrow(1, length, length).contiguous()};
  const Sight own{.keys = length, .causal = causal}, all{.keys = length};
  const auto wide = qkv.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  const at::Tensor dkv[] = {at::zeros({kBatch, length, 2 * kWidth}, wide),
                            at::zeros({kBatch, length, 2 * kWidth}, wide)};
  std::vector<at::Tensor> outputs, dq;
  for (const int query : {0, 1}) {
    const auto each = [&](auto add) {
      add(query, own);
      if (!causal || query == 1) add(1 - query, all);
    };
    PartialAttention attention({part[query]}, kHeads, kWidth);
    each([&](int from, const Sight& sight) {
      attention.add({part[from], kWidth}, {part[from], 2 * kWidth}, sight);
    });
    outputs.push_back(attention.output());
    PartialAttentionBackward backward({part[query]}, kHeads, outputs.back(), attention.logsumexp(),
                                      gradient.narrow(1, query * length, length));
    each([&](int from, const Sight& sight) {
      backward.add({part[from], kWidth}, {part[from], 2 * kWidth}, sight, {dkv[from]},
                   {dkv[from], kWidth});
    });
    dq.push_back(backward.query_gradient());
  }
  return {at::cat(outputs, 1),
          at::cat({at::cat(dq, 1), at::cat({dkv[0], dkv[1]}, 1)}, 2).to(qkv.scalar_type())};
}

// By Trireme's kernels and by LibTorch's operators.
class EveryPartialAttention : public ::testing::TestWithParam<Implementation> {
 protected:
  void SetUp() override {
    if (GetParam() == Implementation::LibTorch) libtorch_.emplace();
  }
  std::optional<LibTorchOnCpu> libtorch_;
};
INSTANTIATE_TEST_SUITE_P(, EveryPartialAttention,
                         ::testing::Values(Implementation::Kernels, Implementation::LibTorch));

TEST_P(EveryPartialAttention, IsThatOverAllKeys) {
  set_up_process({.kernel_threads = 1});
  at::manual_seed(3);
  // Parts of one row, of a block and a remainder, and of more keys than a block has.
  for (const std::int64_t length : {1, 30, 150, 1100}) {
    const at::Tensor qkv = 2 * at::randn({kBatch, 2 * length, 3 * kWidth}, at::kDouble),
                     gradient = at::randn({kBatch, 2 * length, kWidth}, at::kDouble);
    for (const bool causal : {true, false}) {
      const Parts wanted = whole(qkv, gradient, causal);
      for (const auto& [type, tolerance] :
           {std::pair{at::kDouble, 1e-13}, {at::kFloat, 2e-6}, {at::kBFloat16, 2e-2}}) {
        const Parts got = in_parts(qkv.to(type), gradient.to(type), causal);
        EXPECT_EQ(got.output.scalar_type(), type);
        EXPECT_LT(relative(got.output, wanted.output), tolerance)
            << c10::toString(type) << " length " << length << " causal " << causal;
        EXPECT_LT(relative(got.dqkv, wanted.dqkv), tolerance)
            << c10::toString(type) << " length " << length << " causal " << causal;
      }
    }
  }
}

// Only the second half sees the part: the first half's results do not change.
TEST_P(EveryPartialAttention, BeginsAtTheFirstQueryThatSees) {
  const at::NoGradGuard off;
  const at::Tensor qkv = at::randn({kBatch, 10, 3 * kWidth});
  PartialAttention before({qkv}, kHeads, kWidth), after({qkv}, kHeads, kWidth);
  const Columns key{qkv, kWidth}, value{qkv, 2 * kWidth};
  for (PartialAttention* attention : {&before, &after})
    attention->add(key, value, {.keys = 10, .causal = true});
  after.add(key, value, {.first_query = 5, .keys = 10});
  EXPECT_TRUE(at::equal(after.output().narrow(1, 0, 5), before.output().narrow(1, 0, 5)));
  EXPECT_FALSE(at::equal(after.output().select(1, 5), before.output().select(1, 5)));
}

// Scores near a thousand give no infinity and no NaN: the maximum is updated with each part.
TEST_P(EveryPartialAttention, TakesLargeScores) {
  const at::NoGradGuard off;
  at::manual_seed(4);
  const at::Tensor qkv = 40 * at::randn({kBatch, 20, 3 * kWidth}, at::kDouble);
  const at::Tensor wanted = attention(qkv, kHeads, true);
  const Parts got = in_parts(qkv.to(at::kFloat), at::ones({kBatch, 20, kWidth}), true);
  EXPECT_LT(relative(got.output, wanted), 1e-5);
  EXPECT_TRUE(at::isfinite(got.dqkv).all().item<bool>());
}

// The backward pass computes the scores again, perhaps outside of autocast.
TEST_P(EveryPartialAttention, AutocastChangesNoBit) {
  const at::Tensor qkv = at::randn({kBatch, 20, 3 * kWidth}),
                   gradient = at::randn({kBatch, 20, kWidth});
  const Parts wanted = in_parts(qkv, gradient, true);
  const Autocast casts;
  const Parts got = in_parts(qkv, gradient, true);
  EXPECT_TRUE(at::equal(got.output, wanted.output));
  EXPECT_TRUE(at::equal(got.dqkv, wanted.dqkv));
}

}  // namespace
}  // namespace trireme::tensor::partial_attention_test
