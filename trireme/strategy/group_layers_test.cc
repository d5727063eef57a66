// Compares losses and gradients with one process for models whose tokens are cut among ranks
// (context, expert, and both with tensor parallelism).
#include "trireme/layers/group_layers.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <map>
#include <set>

#include "trireme/base/error.h"
#include "trireme/layers/context/positions.h"
#include "trireme/layers/tensor/layers.h"
#include "trireme/layers/tensor/part.h"
#include "trireme/memory/recompute.h"
#include "trireme/models/experts.h"
#include "trireme/models/models.h"
#include "trireme/placement/stage.h"
#include "trireme/strategy/strategy.h"
#include "trireme/tensor/determinism.h"
#include "trireme/tensor/random.h"
#include "trireme/testing/run_ranks.h"

namespace trireme::group_layers_test {
namespace {

constexpr std::int64_t kSequences = 12, kLength = 24, kVocab = 22;

struct Parameter {
  at::Tensor gradient;
  models::Part part;
};
struct Outcome {
  double loss = 0;
  models::RoutingCounts routing;
  std::map<std::string, Parameter> parameters;
};

MicroBatch text() {
  at::Tensor noise = at::empty({kSequences, kLength + 1}, at::kFloat);
  tensor::fill_uniform(noise, 7, "text", 0, static_cast<double>(kVocab));
  const at::Tensor tokens = noise.to(at::kLong).clamp(0, kVocab - 1);
  at::Tensor targets = tokens.narrow(1, 1, kLength).clone();
  targets.select(1, 3).fill_(-1);  // not counted in the loss
  return {.count = kSequences * (kLength - 1),
          .fields = {{"tokens", tokens.narrow(1, 0, kLength).contiguous()}, {"targets", targets}}};
}

Outcome compute(const models::Blocks& blocks, const MicroBatch& micro,
                const std::string& recompute = "none") {
  parallel::Stage stage(blocks, 1);
  stage.train(true);
  stage.recompute(memory::parse_recompute(recompute));
  Outcome outcome;
  const models::RoutingScope scope(outcome.routing);
  const at::Tensor sum = token_loss()(stage.forward(micro, 0), micro);
  sum.backward();
  outcome.loss = sum.item<double>();
  for (const auto& member : stage.members())
    for (const models::NamedTensor& own : member.block->parameters())
      outcome.parameters[member.name + "." + own.name] = {own.tensor.grad(), own.part};
  return outcome;
}

using Build = std::function<models::Blocks()>;
struct Layout {
  int context = 1, expert = 1, tensor = 1;
  bool context_outside = true;  // whether context layers wrap expert layers
  bool sequence = false;
  std::string recompute = "none";
  int ranks() const { return context * expert * tensor; }
  std::string text() const {
    return "context " + std::to_string(context) + " expert " + std::to_string(expert) + " tensor " +
           std::to_string(tensor) + (sequence ? " sequence" : "") +
           (context_outside ? "" : " expert outside");
  }
};

// The rank's number is (e * C + c) * T + t.
Outcome on_rank(const Layout& layout, testing::RankContext& rank, const Build& build) {
  const int t = rank.rank % layout.tensor, c = rank.rank / layout.tensor % layout.context,
            e = rank.rank / layout.tensor / layout.context;
  const auto tensor_group = rank.world->split(e * layout.context + c, t),
             context_group = rank.world->split(e * layout.tensor + t, c),
             expert_group = rank.world->split(c * layout.tensor + t, e);
  auto layers = parallel::tensor_layers(*tensor_group, layout.sequence);
  if (!layout.context_outside) layers = parallel::context_layers(*context_group, layers);
  layers = parallel::expert_layers(*expert_group, layers);
  if (layout.context_outside) layers = parallel::context_layers(*context_group, layers);
  const models::LayersScope scope(layers);
  const MicroBatch micro =
      parallel::cut_positions(parallel::own_sequences(text(), e, layout.expert), c, layout.context);
  return compute(build(), micro, layout.recompute);
}

double distance(const at::Tensor& a, const at::Tensor& b) { return (a - b).norm().item<double>(); }

// Some rank has each parameter's gradient, and wherever it is, it equals that of one process.
void expect_as_one_process(const Layout& layout, const Build& build, double tolerance) {
  tensor::set_up_process({});
  const Outcome one = compute(build(), text());
  std::vector<Outcome> all(static_cast<std::size_t>(layout.ranks()));
  testing::run_ranks(layout.ranks(), [&](testing::RankContext& rank) {
    all[static_cast<std::size_t>(rank.rank)] = on_rank(layout, rank, build);
  });
  const std::string where = layout.text();
  double loss = 0;
  models::RoutingCounts routing;
  for (const Outcome& own : all) {
    loss += own.loss / layout.tensor;  // equal on all ranks of a tensor group
    routing.choices += own.routing.choices;
    routing.dropped += own.routing.dropped;
  }
  EXPECT_NEAR(loss, one.loss, tolerance * std::abs(one.loss)) << where;
  EXPECT_EQ(routing.choices, one.routing.choices * layout.tensor) << where;
  EXPECT_EQ(routing.dropped, one.routing.dropped * layout.tensor) << where;
  std::set<std::string> seen;
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    EXPECT_EQ(all[rank].parameters.size(), one.parameters.size())
        << "rank " << rank << ": " << where;
    for (const auto& [name, own] : all[rank].parameters) {
      ASSERT_TRUE(one.parameters.contains(name)) << name;
      ASSERT_TRUE(own.gradient.defined()) << name << ": " << where;
      if (own.part.here()) seen.insert(name);
      const at::Tensor wanted = parallel::part_of(one.parameters.at(name).gradient, own.part);
      ASSERT_EQ(own.gradient.sizes(), wanted.sizes()) << name;
      EXPECT_LE(distance(own.gradient, wanted), tolerance * wanted.norm().item<double>())
          << name << " on rank " << rank << ": " << where;
      if (!own.part.everywhere()) continue;
      for (const Outcome& other : all) {
        const auto same = other.parameters.find(name);
        if (same != other.parameters.end()) {
          EXPECT_TRUE(at::equal(same->second.gradient, own.gradient))
              << name << " differs between ranks: " << where;
        }
      }
    }
  }
  EXPECT_EQ(seen.size(), one.parameters.size()) << where;
}

Build gpt(const std::string& precision, int experts, bool bias = false, double dropout = 0) {
  return [=] {
    return models::make_gpt({.layers = 2,
                             .heads = 4,
                             .width = 16,
                             .block = kLength,
                             .vocab = kVocab,
                             .bias = bias,
                             .experts = experts,
                             .capacity_factor = 0.9,
                             .balance = 0.5,
                             .dropout = dropout,
                             .precision = precision});
  };
}

TEST(ContextLayers, GptIsThatOfOneProcess) {
  for (const int ranks : {1, 2, 3, 4}) {
    expect_as_one_process({.context = ranks}, gpt("fp64", 0, ranks != 3), 1e-12);
    expect_as_one_process({.context = ranks}, gpt("fp32", 0), 1e-5);
  }
}

TEST(ContextLayers, BertIsThatOfOneProcess) {
  const Build build = [] {
    return models::make_bert({.layers = 2,
                              .heads = 2,
                              .width = 16,
                              .block = kLength,
                              .vocab = kVocab,
                              .precision = "fp64"});
  };
  expect_as_one_process({.context = 3}, build, 1e-12);
}

TEST(ContextLayers, DropoutIsThatOfOneProcess) {
  expect_as_one_process({.context = 2}, gpt("fp64", 0, false, 0.3), 1e-12);
}

TEST(ContextLayers, RefuseSequencesBeyondTheModels) {
  std::string refusal;
  testing::run_ranks(2, [&](testing::RankContext& rank) {
    const models::LayersScope layers(parallel::context_layers(*rank.world, models::local_layers()));
    try {
      compute(gpt("fp32", 0)(), text());  // not cut: 2 ranks would have 48 positions
    } catch (const ConfigError& error) {
      if (rank.rank == 0) refusal = error.what();
    }
  });
  EXPECT_NE(refusal.find("24 x 2 positions are longer than the model's 24"), std::string::npos)
      << refusal;
}

TEST(ExpertLayers, GptIsThatOfOneProcess) {
  tensor::set_up_process({});
  EXPECT_GT(compute(gpt("fp64", 12)(), text()).routing.dropped, 0) << "capacity is not tested";
  for (const int ranks : {1, 2, 3, 4}) {
    expect_as_one_process({.expert = ranks}, gpt("fp64", 12, ranks != 3), 1e-12);
    expect_as_one_process({.expert = ranks}, gpt("fp32", 12), 1e-5);
  }
}

// An expert gets its rows in the order of one process, on whichever rank it is.
TEST(ExpertLayers, ExpertsHaveOneProcessesBits) {
  tensor::set_up_process({});
  const Build build = [] {
    return models::make_gpt(
        {.layers = 1, .heads = 2, .width = 16, .block = kLength, .vocab = kVocab, .experts = 4});
  };
  const Outcome one = compute(build(), text());
  testing::run_ranks(2, [&](testing::RankContext& rank) {
    const Outcome own = on_rank({.expert = 2}, rank, build);
    for (const auto& [name, parameter] : own.parameters) {
      if (parameter.part.places == 1 || !parameter.part.here()) continue;
      EXPECT_TRUE(at::equal(parameter.gradient, one.parameters.at(name).gradient)) << name;
    }
    EXPECT_EQ(own.parameters.at("layer.0.experts.3.up.weight").part.here(), rank.rank == 1);
  });
}

TEST(ExpertLayers, DropoutIsThatOfOneProcess) {
  expect_as_one_process({.expert = 2}, gpt("fp64", 4, false, 0.3), 1e-12);
}

TEST(ExpertLayers, RefuseWhatDoesNotDivide) {
  testing::run_ranks(3, [&](testing::RankContext& rank) {
    const models::LayersScope layers(parallel::expert_layers(*rank.world, models::local_layers()));
    try {
      compute(gpt("fp32", 4)(), text());
      ADD_FAILURE() << "4 experts on 3 ranks";
    } catch (const ConfigError& error) {
      EXPECT_NE(std::string(error.what()).find("4 / 3 leaves 1"), std::string::npos)
          << error.what();
    }
  });
  EXPECT_THROW(parallel::own_sequences(text(), 0, 5), ConfigError);
}

TEST(GroupLayers, StandOnOneAnother) {
  expect_as_one_process({.context = 2, .tensor = 2}, gpt("fp64", 0, true), 1e-12);
  expect_as_one_process({.context = 2, .tensor = 2, .sequence = true}, gpt("fp64", 0, true), 1e-12);
  expect_as_one_process({.expert = 2, .tensor = 2}, gpt("fp64", 4, true), 1e-12);
  // Dense layers: with experts, each part of a sequence would be routed separately.
  expect_as_one_process({.context = 2, .expert = 2}, gpt("fp64", 0), 1e-12);
  expect_as_one_process({.context = 2, .expert = 2, .tensor = 2, .context_outside = false},
                        gpt("fp64", 0), 1e-12);
}

// If no token is dropped, routing the parts of a sequence separately changes only the balance loss,
// which is not linear and is 0 here.
TEST(GroupLayers, ExpertsOverPartsOfSequences) {
  const Build build = [] {
    return models::make_gpt({.layers = 2,
                             .heads = 2,
                             .width = 16,
                             .block = kLength,
                             .vocab = kVocab,
                             .experts = 4,
                             .capacity_factor = 4,
                             .balance = 0,
                             .precision = "fp64"});
  };
  expect_as_one_process({.context = 2, .expert = 2}, build, 1e-12);
  expect_as_one_process({.context = 2, .expert = 2, .context_outside = false}, build, 1e-12);
}

// A recomputed block sends its keys and tokens again.
TEST(GroupLayers, RecomputationChangesNoBit) {
  for (const Layout& layout : {Layout{.context = 3}, Layout{.expert = 3}}) {
    const Build build = gpt("fp32", layout.expert > 1 ? 6 : 0, true, 0.2);
    std::vector<Outcome> kept(3);
    testing::run_ranks(3, [&](testing::RankContext& rank) {
      kept[static_cast<std::size_t>(rank.rank)] = on_rank(layout, rank, build);
    });
    testing::run_ranks(3, [&](testing::RankContext& rank) {
      Layout again = layout;
      again.recompute = "full";
      const Outcome own = on_rank(again, rank, build);
      const Outcome& wanted = kept[static_cast<std::size_t>(rank.rank)];
      EXPECT_EQ(own.loss, wanted.loss);
      for (const auto& [name, parameter] : own.parameters)
        EXPECT_TRUE(at::equal(parameter.gradient, wanted.parameters.at(name).gradient)) << name;
    });
  }
}

TEST(GroupLayers, RefuseExpertsAmongRanksThatCutSequences) {
  testing::run_ranks(2, [&](testing::RankContext& rank) {
    EXPECT_THROW(on_rank({.tensor = 2, .sequence = true}, rank, gpt("fp32", 4)), ConfigError);
  });
}

}  // namespace
}  // namespace trireme::group_layers_test
