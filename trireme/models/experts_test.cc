// A mixture of experts against a loop over tokens, against finite differences, and out of balance.
#include "trireme/models/experts.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>

#include <map>

#include "trireme/base/error.h"
#include "trireme/models/models.h"
#include "trireme/models/routing.h"
#include "trireme/tensor/determinism.h"
#include "trireme/tensor/functions/loss_gradient.h"

namespace trireme::models {
namespace {

using Leaves = std::map<std::string, at::Tensor>;

Leaves leaves_of(const Experts& experts) {
  std::vector<NamedTensor> all;
  experts.append_parameters(all);
  Leaves leaves;
  for (const NamedTensor& parameter : all) leaves[parameter.name] = parameter.tensor;
  return leaves;
}

std::unique_ptr<Experts> make(const ExpertsSpec& spec, at::ScalarType type = at::kDouble) {
  return local_layers()->experts({.block = "layer.0", .seed = 4, .type = type}, spec);
}

ExpertsSpec small(int experts, int top_k, double capacity_factor, bool bias = false) {
  return {.expert = {.width = 6,
                     .hidden = 10,
                     .activation = experts == 4 ? Activation::Swiglu : Activation::Gelu,
                     .bias = bias,
                     .stddev = 0.5,
                     .stddev_down = 0.5},
          .experts = experts,
          .top_k = top_k,
          .capacity_factor = capacity_factor};
}

// The definition, token by token and choice by choice, from the same leaves.
struct Naive {
  at::Tensor y, balance;
  std::int64_t dropped = 0;
};
Naive naive(const at::Tensor& x, const Leaves& leaves, const ExpertsSpec& spec) {
  const std::int64_t batch = x.size(0), length = x.size(1);
  const auto capacity = static_cast<std::int64_t>(
      std::ceil(spec.capacity_factor * spec.top_k * static_cast<double>(length) / spec.experts));
  const auto bias = [&](const std::string& name) {
    return leaves.contains(name) ? leaves.at(name) : at::zeros({}, x.options());
  };
  Naive result{.balance = at::zeros({}, x.options())};
  std::vector<at::Tensor> sequences;
  for (std::int64_t b = 0; b < batch; ++b) {
    const at::Tensor p = at::matmul(x[b], leaves.at("router.weight").t()).softmax(-1);
    std::vector<at::Tensor> rows(static_cast<std::size_t>(length),
                                 at::zeros({spec.expert.width}, x.options()));
    std::vector<std::int64_t> used(static_cast<std::size_t>(spec.experts), 0);
    const at::Tensor chosen = std::get<1>(p.sort(true, 1, true)).narrow(1, 0, spec.top_k);
    for (std::int64_t k = 0; k < spec.top_k; ++k) {
      for (std::int64_t t = 0; t < length; ++t) {
        const auto e = chosen[t][k].item<std::int64_t>();
        if (used[static_cast<std::size_t>(e)]++ >= capacity) {
          ++result.dropped;
          continue;
        }
        at::Tensor gate = p[t][e];
        if (spec.top_k > 1) gate = gate / p[t].index_select(0, chosen[t]).sum();
        const std::string name = "experts." + std::to_string(e);
        const at::Tensor up =
            at::matmul(leaves.at(name + ".up.weight"), x[b][t]) + bias(name + ".up.bias");
        const at::Tensor middle = spec.expert.is_gated()
                                      ? at::silu(up.narrow(0, 0, 10)) * up.narrow(0, 10, 10)
                                      : at::gelu(up, "tanh");
        rows[static_cast<std::size_t>(t)] =
            rows[static_cast<std::size_t>(t)] +
            gate *
                (at::matmul(leaves.at(name + ".down.weight"), middle) + bias(name + ".down.bias"));
      }
    }
    sequences.push_back(at::stack(rows));
    for (std::int64_t e = 0; e < spec.experts; ++e)
      result.balance =
          result.balance + static_cast<double>(length * spec.experts) *
                               (static_cast<double>(used[static_cast<std::size_t>(e)]) /
                                static_cast<double>(spec.top_k * length)) *
                               p.select(1, e).mean();
  }
  result.y = at::stack(sequences);
  return result;
}

at::Tensor upstream(const at::Tensor& y) {
  return at::arange(y.numel(), y.options()).mul(0.37).sin().view(y.sizes());
}

double relative(const at::Tensor& a, const at::Tensor& b) {
  const at::Tensor wide = b.to(at::kDouble);
  return ((a.to(at::kDouble) - wide).norm() / (wide.norm() + 1e-30)).item<double>();
}

class MixtureOfExperts : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { tensor::set_up_process({.kernel_threads = 1}); }
};

TEST_F(MixtureOfExperts, IsTheLoopOverTokens) {
  for (const int experts : {1, 3, 4, 8}) {
    for (const int top_k : {1, 2, 3}) {
      if (top_k > experts) continue;
      for (const double factor : {0.6, 1.0, 2.0}) {
        const ExpertsSpec spec = small(experts, top_k, factor, experts == 3);
        at::manual_seed(experts * 10 + top_k);
        const at::Tensor values = at::randn({3, 7, 6}, at::kDouble);
        const auto ours = make(spec);
        const Leaves leaves = leaves_of(*ours);
        at::Tensor x = values.clone().set_requires_grad(true);
        RoutingCounts counts;
        Mixed mixed;
        {
          const RoutingScope scope(counts);
          mixed = ours->forward(x);
        }
        ((mixed.y * upstream(mixed.y)).sum() + 0.3 * mixed.balance).backward();
        Leaves got = {{"x", x.grad()}};
        for (const auto& [name, leaf] : leaves) {
          got[name] = leaf.grad().defined() ? leaf.grad().clone() : at::Tensor();
          leaf.mutable_grad().reset();
        }
        at::Tensor again = values.clone().set_requires_grad(true);
        const Naive wanted = naive(again, leaves, spec);
        ((wanted.y * upstream(wanted.y)).sum() + 0.3 * wanted.balance).backward();
        const std::string where = std::to_string(experts) + " experts, top " +
                                  std::to_string(top_k) + ", factor " + std::to_string(factor);
        EXPECT_LT(relative(mixed.y, wanted.y), 1e-13) << where;
        EXPECT_NEAR(mixed.balance.item<double>(), wanted.balance.item<double>(), 1e-12) << where;
        EXPECT_EQ(counts.dropped, wanted.dropped) << where;
        EXPECT_EQ(counts.choices, 3 * 7 * top_k);
        EXPECT_LT(relative(got["x"], again.grad()), 1e-12) << where;
        for (const auto& [name, leaf] : leaves) {
          const at::Tensor gradient = leaf.grad().defined() ? leaf.grad() : at::zeros_like(leaf);
          ASSERT_TRUE(got[name].defined()) << name << " " << where;
          EXPECT_LE((got[name] - gradient).norm().item<double>(),
                    1e-12 * gradient.norm().item<double>() + 1e-15)
              << name << " " << where;
        }
      }
    }
  }
}

// All tokens choose expert 0, which accepts 3 of a sequence of 12 (top 1 of 4, factor 1).
TEST_F(MixtureOfExperts, CountsWhatHasNoPlaceWhereAllWantOneExpert) {
  for (const bool tie : {false, true}) {
    const auto ours = make(small(4, 1, 1.0));
    const Leaves leaves = leaves_of(*ours);
    {
      const at::NoGradGuard off;
      at::Tensor router = leaves.at("router.weight");
      router.zero_();
      if (!tie) router.select(0, 2).fill_(5);
    }
    const std::string favourite = tie ? "experts.0" : "experts.2";
    at::manual_seed(1);
    const at::Tensor x = at::rand({5, 12, 6}, at::kDouble) + 0.1;
    RoutingCounts counts;
    const RoutingScope scope(counts);
    const Mixed mixed = ours->forward(x);
    EXPECT_EQ(counts.choices, 60);
    EXPECT_EQ(counts.dropped, 5 * (12 - 3));
    // The first three tokens of each sequence are computed, the others are dropped.
    EXPECT_EQ(mixed.y.narrow(1, 3, 9).abs().max().item<double>(), 0);
    EXPECT_GT(mixed.y.narrow(1, 0, 3).abs().sum(2).min().item<double>(), 0);
    mixed.y.sum().backward();
    for (const auto& [name, leaf] : leaves) {
      if (!name.starts_with("experts.")) continue;
      EXPECT_EQ(leaf.grad().abs().max().item<double>() > 0, name.starts_with(favourite)) << name;
    }
    // If all choices fall on one expert, the balance loss is up to E times that of even choices.
    const double even = 60, most = tie ? even : 4 * even;
    EXPECT_NEAR(mixed.balance.item<double>(), most, 1) << "tie " << tie;
  }
}

TEST_F(MixtureOfExperts, GradientsAreDifferences) {
  at::manual_seed(6);
  const ExpertsSpec spec = small(4, 2, 0.8, true);
  const at::Tensor values = at::randn({2, 5, 6}, at::kDouble);
  const auto ours = make(spec);
  Leaves leaves = leaves_of(*ours);
  leaves["x"] = values.clone().set_requires_grad(true);
  const auto loss = [&] {
    const Mixed mixed = ours->forward(leaves["x"]);
    return (mixed.y * upstream(mixed.y)).sum() + 0.3 * mixed.balance;
  };
  loss().backward();
  const at::NoGradGuard off;
  for (const auto& [name, leaf] : leaves) {
    double* data = leaf.data_ptr<double>();
    for (std::int64_t i = 0; i < leaf.numel(); i += 2) {
      const double kept = data[i], step = 1e-6;
      data[i] = kept + step;
      const double up = loss().item<double>();
      data[i] = kept - step;
      const double down = loss().item<double>();
      data[i] = kept;
      EXPECT_NEAR(leaf.grad().flatten()[i].item<double>(), (up - down) / (2 * step), 1e-7)
          << name << " element " << i;
    }
  }
}

TEST_F(MixtureOfExperts, InOtherPrecisionsIsThatOfFp64) {
  at::manual_seed(8);
  const ExpertsSpec spec = small(4, 2, 1.0);
  const at::Tensor values = at::randn({3, 8, 6}).to(at::kBFloat16).to(at::kDouble);
  const auto wide = make(spec);
  const at::Tensor wanted = wide->forward(values).y;
  for (const auto& [type, tolerance] :
       {std::pair{at::kFloat, 2e-6}, {at::kBFloat16, 2e-2}, {at::kHalf, 2e-2}}) {
    const auto ours = make(spec, type);
    // The router's weight is drawn in fp32 for all types; the experts' are fp64's, rounded.
    const Mixed mixed = ours->forward(values.to(type));
    EXPECT_EQ(mixed.y.scalar_type(), at::kFloat);
    EXPECT_EQ(leaves_of(*ours).at("router.weight").scalar_type(), at::kFloat);
    EXPECT_EQ(leaves_of(*ours).at("experts.1.up.weight").scalar_type(), type);
    EXPECT_LT(relative(mixed.y, wanted), tolerance) << c10::toString(type);
  }
}

TEST_F(MixtureOfExperts, HasALossThatOnlyGradientsShow) {
  at::Tensor x = at::ones({3}, at::kDouble).set_requires_grad(true),
             y = at::full({}, 2.0, at::kDouble).set_requires_grad(true);
  const at::Tensor sum = (with_loss(x, 5 * y * y) * 7).sum();
  EXPECT_EQ(sum.item<double>(), 21);
  sum.backward();
  EXPECT_TRUE(at::equal(x.grad(), at::full({3}, 7.0, at::kDouble)));
  EXPECT_EQ(y.grad().item<double>(), 20) << "5 y y, as if it had been added to the sum";
}

// The loss scale applies to this loss as to the others.
TEST_F(MixtureOfExperts, HasALossThatIsScaledAsTheOthersAre) {
  at::Tensor x = at::ones({3}, at::kDouble).set_requires_grad(true),
             y = at::full({}, 2.0, at::kDouble).set_requires_grad(true);
  const at::Tensor sum = (with_loss(x, 5 * y * y) * 7).sum();
  const tensor::LossGradientScope scale(8);
  sum.backward(at::full_like(sum, tensor::loss_gradient()));
  EXPECT_EQ(x.grad().sum().item<double>(), 8 * 21);
  EXPECT_EQ(y.grad().item<double>(), 8 * 20);
}

TEST_F(MixtureOfExperts, RefusesNumbersThatDoNotFit) {
  EXPECT_THROW(make(small(2, 3, 1)), ConfigError);
  EXPECT_THROW(make(small(2, 0, 1)), ConfigError);
  EXPECT_THROW(make(small(2, 1, 0)), ConfigError);
}

}  // namespace
}  // namespace trireme::models
