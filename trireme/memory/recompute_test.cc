#include "trireme/memory/recompute.h"

#include <ATen/ATen.h>
#include <ATen/autocast_mode.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/functional/dropout.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/linear.h>

#include "trireme/base/error.h"
#include "trireme/models/figures.h"
#include "trireme/tensor/autocast.h"
#include "trireme/tensor/random.h"

namespace trireme::recompute_test {
namespace {

using memory::parse_recompute;
using memory::recompute;
using ::testing::ElementsAre;

struct Net {
  torch::nn::Linear first{6, 8}, second{8, 6};
  int runs = 0;
  Net() {
    std::size_t number = 0;
    for (const at::Tensor& p : parameters()) {
      const at::NoGradGuard off;
      tensor::fill_normal(p, 3, "p" + std::to_string(number++), 0, 0.5);
    }
  }
  std::vector<at::Tensor> parameters() const {
    return {first->weight, first->bias, second->weight, second->bias};
  }
  at::Tensor forward(const at::Tensor& x) {
    ++runs;
    const at::Tensor dropped = torch::dropout(at::gelu(first->forward(x)), 0.5, true);
    return second->forward(dropped) + x;
  }
};

at::Tensor input() {
  at::Tensor x = at::empty({5, 6});
  tensor::fill_normal(x, 1, "x", 0, 1);
  return x.requires_grad_(true);
}

struct Outcome {
  std::vector<at::Tensor> tensors;  // loss, gradients, and the next random number
  int runs = 0;
};

Outcome train(bool again, bool autocast = false) {
  at::manual_seed(5);
  Net net;
  const at::Tensor x = input();
  Outcome outcome;
  at::Tensor loss;
  {
    const Autocast casts(at::kCPU, at::kBFloat16, autocast);
    const auto forward = [&](const at::Tensor& in) { return net.forward(in); };
    const at::Tensor middle = again ? recompute(forward, x * 2) : forward(x * 2);
    // Without recomputation, autocast casts a leaf once for two uses and adds their gradients in
    // bf16. So under autocast each leaf is used once.
    const at::Tensor last = autocast ? middle
                            : again  ? recompute(forward, middle)
                                     : forward(middle);
    loss = last.to(at::kFloat).pow(2).sum();
  }
  loss.backward();
  outcome.tensors = {loss.detach(), x.grad()};
  for (const at::Tensor& p : net.parameters()) outcome.tensors.push_back(p.grad());
  outcome.tensors.push_back(at::rand({1}));
  outcome.runs = net.runs;
  return outcome;
}

// A weight that is used outside of the part, too, and in a backward pass in autocast's region.
TEST(Recompute, UnderAutocastAWeightGetsAllItsGradients) {
  const auto gradient = [](bool again) {
    const at::Tensor weight = at::ones({4, 6}).requires_grad_(true);
    const at::Tensor x = at::ones({2, 6}).requires_grad_(true);
    const Autocast casts;
    const auto forward = [&](const at::Tensor& in) { return at::linear(in, weight); };
    for (const bool outside : {true, false}) {
      const at::Tensor y = again ? recompute(forward, x) : forward(x);
      (outside ? y.sum() + forward(x).sum() : y.sum()).backward();
    }
    return weight.grad();
  };
  EXPECT_TRUE(at::equal(gradient(false), at::full({4, 6}, 6.0)));
  EXPECT_TRUE(at::equal(gradient(true), gradient(false)));
}

void expect_equal(const Outcome& one, const Outcome& other) {
  ASSERT_EQ(one.tensors.size(), other.tensors.size());
  for (std::size_t i = 0; i < one.tensors.size(); ++i)
    EXPECT_TRUE(at::equal(one.tensors[i], other.tensors[i])) << "tensor " << i;
}

TEST(Recompute, ChangesNoBitAlsoWithDropout) {
  const Outcome kept = train(false), again = train(true);
  expect_equal(kept, again);
  EXPECT_EQ(kept.runs, 2);
  EXPECT_EQ(again.runs, 4);
}

TEST(Recompute, RunsUnderTheAutocastOfTheFirstRun) {
  expect_equal(train(false, true), train(true, true));
}

TEST(Recompute, RunsUnderTheAutocastOfEachDevice) {
  std::vector<std::pair<bool, at::ScalarType>> seen;
  const auto forward = [&](const at::Tensor& in) {
    seen.emplace_back(at::autocast::is_autocast_enabled(at::kCUDA),
                      at::autocast::get_autocast_dtype(at::kCUDA));
    return in * 2;
  };
  const at::ScalarType before = at::autocast::get_autocast_dtype(at::kCUDA);
  at::Tensor y;
  {
    const Autocast casts(at::kCUDA, at::kBFloat16);
    y = recompute(forward, input());
  }
  y.sum().backward();
  EXPECT_THAT(seen, ::testing::Each(::testing::Pair(true, at::kBFloat16)));
  EXPECT_EQ(seen.size(), 2U);
  EXPECT_FALSE(at::autocast::is_autocast_enabled(at::kCUDA));
  EXPECT_EQ(at::autocast::get_autocast_dtype(at::kCUDA), before);
}

TEST(Recompute, PassesIntegersAndUnusedValues) {
  const at::Tensor table = at::ones({4, 2}).requires_grad_(true);
  const at::Tensor tokens = at::tensor({3, 1, 1}, at::kLong);
  const auto values = recompute(
      [&](const std::vector<at::Tensor>& in) {
        return std::vector<at::Tensor>{at::embedding(table, in[0]), in[0] + 1, in[1] * 3};
      },
      {tokens, input()});
  EXPECT_EQ(values[1].scalar_type(), at::kLong);
  EXPECT_FALSE(values[1].requires_grad());
  values[0].sum().backward();  // the third value is not used
  EXPECT_TRUE(at::equal(table.grad(), at::tensor({0., 0., 2., 2., 0., 0., 1., 1.}).view({4, 2})));
}

TEST(Recompute, KeepsNothingBetween) {
  using Weak = c10::weak_intrusive_ptr<c10::TensorImpl>;
  std::vector<Weak> saved;  // the tensor that each run saves for backward
  const auto forward = [&](const at::Tensor& in) {
    const at::Tensor square = in * in;
    saved.emplace_back(square.getIntrusivePtr());
    return square.pow(3);  // needs its input in backward
  };
  const at::Tensor x = input(), kept = forward(x), again = recompute(forward, x);
  ASSERT_EQ(saved.size(), 2u);
  EXPECT_FALSE(saved[0].expired());
  EXPECT_TRUE(saved[1].expired());
  again.sum().backward();
  EXPECT_EQ(saved.size(), 3u);
  EXPECT_TRUE(at::allclose(x.grad(), 6 * x.pow(5)));
}

TEST(Recompute, ASecondRunThatThrowsRewindsNoGenerator) {
  int runs = 0;
  const at::Tensor y = recompute(
      [&](const at::Tensor& in) {
        const at::Tensor dropped = torch::dropout(in, 0.5, true);
        if (++runs == 2) throw std::runtime_error("full");
        return dropped;
      },
      input());
  at::rand({3});  // the backward pass of another block
  const std::uint64_t before = tensor::default_generator_position();
  EXPECT_THROW(y.sum().backward(), std::runtime_error);
  EXPECT_EQ(tensor::default_generator_position(), before);
}

TEST(Recompute, HasNoSecondDerivative) {
  const at::Tensor x = input();
  const at::Tensor y = recompute([](const at::Tensor& in) { return in * in; }, x);
  EXPECT_THROW(y.sum().backward({}, true, /*create_graph=*/true), ConfigError);
}

TEST(Recompute, RunsOnceWithoutGradients) {
  const at::NoGradGuard off;
  Net net;
  recompute([&](const at::Tensor& in) { return net.forward(in); }, input());
  EXPECT_EQ(net.runs, 1);
}

TEST(Recompute, PassesOnWhatTheSecondRunThrows) {
  int runs = 0;
  const at::Tensor y = recompute(
      [&](const at::Tensor& in) {
        if (++runs == 2) throw StepRefused("no");
        return in * 2;
      },
      input());
  EXPECT_THROW(y.sum().backward(), StepRefused);
}

TEST(Recompute, TheShareThatIsComputedAgain) {
  const auto share_again = [](const std::vector<models::BlockActivations>& of,
                              const memory::RecomputePolicy& policy) {
    return memory::costs_of(of, policy).share_again;
  };
  const models::BlockActivations layer{.forward_work = 6, .scores_work = 1},
      head{.forward_work = 2};
  const std::vector<models::BlockActivations> blocks = {{}, layer, layer, layer, head};
  EXPECT_EQ(share_again(blocks, parse_recompute("none")), 0);
  EXPECT_DOUBLE_EQ(share_again(blocks, parse_recompute("selective")), 3 / 60.);
  EXPECT_DOUBLE_EQ(share_again(blocks, parse_recompute("full")), 18 / 60.);
  EXPECT_DOUBLE_EQ(share_again(blocks, parse_recompute("every-2")), 12 / 60.);
  EXPECT_EQ(share_again({{}, {}}, parse_recompute("full")), 0) << "nothing is known of its work";
}

TEST(Recompute, ReadsItsPolicies) {
  using enum memory::Recompute;
  const auto of = [](const char* text) {
    std::vector<memory::Recompute> kinds;
    for (std::size_t block = 0; block < 4; ++block)
      kinds.push_back(parse_recompute(text, 4).of(block, 4));
    return kinds;
  };
  EXPECT_THAT(of("none"), ElementsAre(None, None, None, None));
  EXPECT_THAT(of("selective"), ElementsAre(Selective, Selective, Selective, Selective));
  EXPECT_THAT(of("full"), ElementsAre(Full, Full, Full, None));
  EXPECT_THAT(of("every-2"), ElementsAre(None, Full, None, None));
  EXPECT_THAT(of("full*2, selective,none"), ElementsAre(Full, Full, Selective, None));
  EXPECT_THAT(of("none,full*3"), ElementsAre(None, Full, Full, None));
  for (const char* wrong :
       {"", "all", "every-", "every-0", "every-2x", "every--1", "full*0", "full*", "none,",
        "none,,full", "every-2,none", "full*99999999999999999999"})
    EXPECT_THROW(parse_recompute(wrong), ConfigError) << wrong;
  EXPECT_THROW(parse_recompute("full*3,none*2", 4), ConfigError);
  EXPECT_THROW(parse_recompute("auto"), ConfigError);
}

TEST(Recompute, WritesListsAsItReadsThem) {
  using enum memory::Recompute;
  const std::vector<memory::Recompute> list = {Full, Full, None, Selective, Selective, Selective};
  EXPECT_EQ(memory::to_text(list), "full*2,none*1,selective*3");
  EXPECT_EQ(parse_recompute(memory::to_text(list), 6).of_block, list);
}

TEST(Recompute, TheBytesOfAPolicy) {
  const models::BlockActivations layer{.kept = 100, .probabilities = 30, .inputs = 10};
  const std::vector<models::BlockActivations> blocks = {{}, layer, layer, layer, {.kept = 40}};
  const auto peak = [&](const char* text) {
    return memory::costs_of(blocks, parse_recompute(text)).peak;
  };
  EXPECT_EQ(peak("none"), 340);
  EXPECT_EQ(peak("selective"), 3 * 70 + 40);
  EXPECT_EQ(peak("full"), 3 * 10 + 100);
  EXPECT_EQ(peak("none,full,selective,none*2"), 10 + 70 + 100 + 100);
  const auto offloaded = [&](const char* text) {
    return memory::costs_of(blocks, parse_recompute(text)).peak_offloaded;
  };
  EXPECT_EQ(offloaded("none"), 200);
  EXPECT_EQ(offloaded("full"), 10 + 10 + 100);
  EXPECT_EQ(memory::costs_of(blocks, parse_recompute("none")).file, 300);
  EXPECT_EQ(memory::costs_of(blocks, parse_recompute("every-2")).file, 100 + 2 * 10);
}

}  // namespace
}  // namespace trireme::recompute_test
