// The fixed points of ranks that each train a copy of one weight (parallel.sync = local_sgd, diloco,
// easgd, gossip), by their formulas.
#include <ATen/Functions.h>
#include <gtest/gtest.h>
#include <torch/nn/module.h>

#include <cmath>

#include "trireme/comm/mixing.h"
#include "trireme/models/module_block.h"
#include "trireme/optim/optimizer.h"
#include "trireme/plan/mixing.h"
#include "trireme/strategy/strategy.h"
#include "trireme/sync/strategy_context.h"
#include "trireme/testing/run_ranks.h"

namespace trireme::local_fixed_points_test {
namespace {

// The loss of one weight w on micro-batch i is a/2 (w - c)^2, so rank i's optimum is its c.
struct Parabola {
  double a = 1, c = 0;
};

struct Scalar : torch::nn::Module {
  Scalar() { w = register_parameter("w", at::full({1}, 3.0, at::kDouble)); }
  at::Tensor forward(const at::Tensor& a) { return at::mul(w, at::ones_like(a)); }
  at::Tensor w;
};

models::Blocks scalar_model() {
  models::Blocks model;
  model.add_block({.name = "scalar",
                   .make = [] { return models::as_block(std::make_shared<Scalar>()); },
                   .reads = {"a"}});
  return model;
}

// The common weight after `steps` steps of gradient descent with rank i on parabola i.
double descend(const std::vector<Parabola>& parabolas, const std::string& sync,
               const LocalOptions& local, double rate, int steps, double clip = 0,
               double* norm = nullptr) {
  const int ranks = static_cast<int>(parabolas.size());
  std::vector<double> weights(parabolas.size());
  testing::run_ranks(ranks, [&](testing::RankContext& rank) {
    Strategy strategy(parallel::StrategyContext{.world = rank.world.get()}, scalar_model(),
                      {.sync = sync, .precision = "fp64", .clip = clip, .local = local},
                      optim::make_optimizer(Sgd{.learning_rate = rate}));
    const Loss loss = [](const models::Value& output, const MicroBatch& micro) {
      return (0.5 * micro.field("a") * (output.at(0) - micro.field("c")).pow(2)).sum();
    };
    const auto own = static_cast<std::size_t>(rank.rank);
    const MicroBatch micro{.index = static_cast<std::uint32_t>(rank.rank),
                           .count = 1,
                           .fields = {{"a", at::full({1}, parabolas[own].a, at::kDouble)},
                                      {"c", at::full({1}, parabolas[own].c, at::kDouble)}}};
    for (std::int64_t step = 0; step < steps; ++step) {
      const StepResult result = strategy.step({.micro = {micro},
                                               .total = static_cast<std::uint32_t>(ranks),
                                               .global_count = ranks,
                                               .step = step},
                                              loss);
      if (norm != nullptr && rank.rank == 0) *norm = result.gradient_norm.value_or(0);
    }
    weights[own] = strategy.state().at(0).local.item<double>();
  });
  for (const double weight : weights) EXPECT_EQ(weight, weights[0]);
  return weights[0];
}

const std::vector<Parabola> kParabolas = {{1.0, 2.0}, {0.5, -1.0}, {2.0, 0.25}};

// The minimum of the sum of all parabolas.
double optimum(const std::vector<Parabola>& parabolas) {
  double pull = 0, weight = 0;
  for (const auto& [a, c] : parabolas) pull += a * c, weight += a;
  return pull / weight;
}

// The x with x = mean of c_i + q_i (x - c_i), q_i = (1 - rate a_i)^H: where H steps take rank i.
double local_fixed_point(const std::vector<Parabola>& parabolas, double rate, int steps) {
  double pull = 0, weight = 0;
  for (const auto& [a, c] : parabolas) {
    const double moved = 1 - std::pow(1 - rate * a, steps);
    pull += moved * c, weight += moved;
  }
  return pull / weight;
}

TEST(LocalSgd, ReachesItsFixedPoint) {
  for (const int steps : {1, 4, 16}) {
    const double expected = local_fixed_point(kParabolas, 0.1, steps);
    EXPECT_NEAR(descend(kParabolas, "local_sgd", {.steps = steps}, 0.1, 400), expected, 1e-12)
        << steps << " steps";
  }
  // With one step between averages the fixed point is the optimum; with more it is not.
  EXPECT_NEAR(local_fixed_point(kParabolas, 0.1, 1), optimum(kParabolas), 1e-12);
  EXPECT_GT(std::abs(local_fixed_point(kParabolas, 0.1, 16) - optimum(kParabolas)), 0.01);
}

// The outer optimizer has the fixed point of the copies' mean.
TEST(DiLoCo, ReachesTheFixedPointOfLocalSgd) {
  for (const int steps : {1, 4}) {
    const LocalOptions local{.steps = steps, .outer_rate = 0.7, .outer_momentum = 0.5};
    EXPECT_NEAR(descend(kParabolas, "diloco", local, 0.1, 200 * steps),
                local_fixed_point(kParabolas, 0.1, steps), 1e-10)
        << steps << " steps";
  }
}

// Computes two outer steps by hand; an inner step takes rank i from x to x - 0.1 a_i (x - c_i).
TEST(DiLoCo, TakesNesterovsSteps) {
  double x = 3, momentum = 0;
  for (int round = 0; round < 2; ++round) {
    double delta = 0;
    for (const auto& [a, c] : kParabolas) delta += 0.1 * a * (x - c) / 3;
    momentum = 0.9 * momentum + delta;
    x -= 0.7 * (delta + 0.9 * momentum);
  }
  EXPECT_NEAR(descend(kParabolas, "diloco", {.steps = 1}, 0.1, 2), x, 1e-12);
}

// An exchange leaves rank i at x_i = (1 - alpha) y_i + alpha z and the center at z = mean of y_i.
// y_i = c_i + q_i (x_i - c_i) is the result of the rank's own steps from the last x_i.
double elastic_fixed_point(const std::vector<Parabola>& parabolas, double rate, int steps,
                           double beta) {
  const double alpha = beta / static_cast<double>(parabolas.size());
  double given = 0, fed_back = 0;
  for (const auto& [a, c] : parabolas) {
    const double q = std::pow(1 - rate * a, steps);
    const double d = 1 - (1 - alpha) * q;
    given += (1 - q) * c + q * (1 - alpha) * (1 - q) * c / d;
    fed_back += q * alpha / d;
  }
  const double ranks = static_cast<double>(parabolas.size());
  return given / ranks / (1 - fed_back / ranks);
}

TEST(Easgd, ReachesItsFixedPoint) {
  for (const int steps : {1, 4}) {
    for (const double beta : {0.9, 0.3}) {
      EXPECT_NEAR(descend(kParabolas, "easgd", {.steps = steps, .elastic = beta}, 0.1, 400 * steps),
                  elastic_fixed_point(kParabolas, 0.1, steps, beta), 1e-10)
          << steps << " steps, beta " << beta;
    }
  }
}

TEST(LocalSgd, ReachesTheOptimumOfRanksThatAgreeInCurvature) {
  const std::vector<Parabola> same = {{0.5, 2.0}, {0.5, -1.0}, {0.5, 0.25}, {0.5, 7.0}};
  EXPECT_NEAR(descend(same, "local_sgd", {.steps = 8}, 0.2, 400), optimum(same), 1e-12);
}

// In a ring of three, everyone is a neighbour, so the ranks take the mean of all. If all ranks have
// the same curvature, their mean follows one process's descent on any graph.
TEST(Gossip, ReachesItsFixedPoint) {
  EXPECT_NEAR(descend(kParabolas, "gossip", {.steps = 4, .graph = "ring"}, 0.1, 400),
              local_fixed_point(kParabolas, 0.1, 4), 1e-12);
  const std::vector<Parabola> same = {{0.5, 2.0}, {0.5, -1.0}, {0.5, 0.25}, {0.5, 7.0}, {0.5, 1.0}};
  for (const std::string& graph : plan::mixing_graphs())
    EXPECT_NEAR(descend(same, "gossip", {.steps = 2, .graph = graph}, 0.2, 400), optimum(same),
                1e-12)
        << graph;
}

// After one exchange of one_peer on four ranks, rank i has the mean of its values and rank i-1's.
TEST(Gossip, MixesWithTheNeighboursOfTheRound) {
  testing::run_ranks(4, [&](testing::RankContext& rank) {
    const plan::Mixing mixing = plan::make_mixing("one_peer", 4, 1);
    // With chunks of 64 bytes, one buffer is cut and two buffers share a chunk.
    comm::GossipMixer mixer(*rank.world, 64);
    std::vector<float> a(5, static_cast<float>(rank.rank)), b(21);
    for (std::size_t i = 0; i < b.size(); ++i)
      b[i] = static_cast<float>(100 * rank.rank) + static_cast<float>(i);
    const std::vector<Buffer> buffers = {Buffer::of(std::span(a)), Buffer::of(std::span(b))};
    mixer.mix(mixing.round(0), buffers);
    const auto before = static_cast<float>((rank.rank + 3) % 4),
               own = static_cast<float>(rank.rank);
    for (const float value : a) EXPECT_EQ(value, (own + before) / 2);
    for (std::size_t i = 0; i < b.size(); ++i)
      EXPECT_EQ(b[i], 50 * (own + before) + static_cast<float>(i));
    mixer.mix(mixing.round(1), buffers);
    for (const float value : a) EXPECT_EQ(value, 1.5f);  // 2^2 ranks: 2 rounds give the mean
  });
}

// At w = 3 the ranks' gradients are 1, 2 and 5.5.
TEST(LocalSgd, ClipsARanksOwnGradient) {
  double norm = 0;
  EXPECT_NEAR(descend(kParabolas, "local_sgd", {.steps = 1}, 0.1, 1, 1.5, &norm),
              3 - 0.1 * (1 + 1.5 + 1.5) / 3, 1e-6);
  EXPECT_NEAR(norm, std::sqrt((1 + 4 + 30.25) / 3), 1e-12);
}

}  // namespace
}  // namespace trireme::local_fixed_points_test
