// DataParallel's state: saved, restored and resumed, on its own and before the first step.
#include <ATen/Functions.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/sgd.h>

#include <functional>
#include <map>
#include <memory>
#include <set>

#include "trireme/kernel/assignment.h"
#include "trireme/strategy/data_parallel.h"
#include "trireme/strategy/data_parallel_test.h"
#include "trireme/sync/strategy_context.h"
#include "trireme/testing/run_ranks.h"

namespace trireme::data_parallel_test {
namespace {

// A Checkpointer of an elastic job asks for it at the start.
TEST(DataParallel, MetadataBeforeTheFirstStepChangeNothing) {
  testing::run_ranks(1, [](testing::RankContext& rank) {
    torch::nn::Linear net(2, 1);
    torch::optim::Adam adam(net->parameters(), 1e-2);
    DataParallel parallel({.world = rank.world.get()}, *net, adam);
    parallel.metadata();
    net->forward(at::ones({1, 2})).sum().backward();
    EXPECT_TRUE(parallel.step());
  });
}

enum class Before { Nothing, State, RestoredState, StateOfAnother };

// The weights after three steps of two ranks; `before` is done before the first one.
std::string hash_after(const std::string& sync, Before before, bool saves = false) {
  std::string hash;
  testing::run_ranks(2, [&](testing::RankContext& rank) {
    at::manual_seed(7);
    Net net;
    torch::optim::SGD sgd(net.parameters(),
                          torch::optim::SGDOptions(0.1).momentum(0.9).dampening(0.5));
    const auto make = [&] {
      return DataParallel({.world = rank.world.get()}, net, sgd, {.sync = sync});
    };
    if (before == Before::StateOfAnother) make().state();
    DataParallel parallel = make();
    if (before == Before::State || before == Before::RestoredState) parallel.state();
    if (before == Before::RestoredState) parallel.restored(parallel.metadata());
    for (int step = 0; step < 3; ++step) {
      mean_loss(net, 2 * step + rank.rank, 1).backward();
      parallel.step();
      if (saves) parallel.state();
    }
    if (rank.rank == 0) hash = parallel.weights_hash();
  });
  return hash;
}

// LibTorch's SGD takes the first gradient whole as its momentum, however large the dampening is. After
// a momentum of zero it would take a part of it. The momentum of zeros that state() makes must not
// outlive the DataParallel, either.
TEST(DataParallel, AStateBeforeTheFirstStepChangesNoUpdate) {
  for (const char* sync : {"plain", "zero1"}) {
    const std::string without = hash_after(sync, Before::Nothing);
    EXPECT_EQ(hash_after(sync, Before::State, /*saves=*/true), without) << sync;
    EXPECT_EQ(hash_after(sync, Before::RestoredState, /*saves=*/true), without) << sync;
    EXPECT_EQ(hash_after(sync, Before::StateOfAnother), without) << sync;
  }
}

// Resumes before the third batch: rank 0 takes part in it before its loop begins. So does one that
// takes the place of another DataParallel.
TEST(DataParallel, KnowsThatTheFirstBatchAfterAResumeMayHaveNoShareForARank) {
  for (const bool replaces : {false, true}) {
    testing::run_ranks(3, [&](testing::RankContext& rank) {
      auto plan = std::make_shared<Plan>(8, 3, 1, rank.rank, kernel::contiguous(3));
      for (int done = 0; done < 2; ++done) plan->consume();
      parallel::StrategyContext env{.world = rank.world.get()};
      env.input->set_plan(plan);
      Net net, other;
      torch::optim::SGD sgd(net.parameters(), torch::optim::SGDOptions(1e-2));
      torch::optim::SGD others(other.parameters(), torch::optim::SGDOptions(1e-2));
      std::unique_ptr<DataParallel> parallel;
      if (replaces) parallel = std::make_unique<DataParallel>(env, other, others);
      parallel = std::make_unique<DataParallel>(env, net, sgd);
      env.input->begin_pass();
      if (rank.rank > 0) {
        mean_loss(net, 5 + rank.rank, 1).backward();
        EXPECT_TRUE(parallel->step());
        EXPECT_FALSE(parallel->all_ranks_return());
      }
      plan->next_epoch();
      mean_loss(net, rank.rank, 1).backward();
      EXPECT_TRUE(parallel->step());
      EXPECT_TRUE(parallel->all_ranks_return());
      EXPECT_EQ(parallel->steps(), 2);
    });
  }
}

using MakeOptimizer = std::function<std::unique_ptr<torch::optim::Optimizer>(Net& net)>;

// Five steps at once, and three and two in another program that goes on from the first one's state.
// Returns the names of that state.
std::set<std::string> expect_equal_bits_after_a_resume(testing::RankContext& rank, double dropout,
                                                       const MakeOptimizer& make,
                                                       const DataParallelOptions& options = {}) {
  struct Program {
    Program(testing::RankContext& rank, double dropout, const MakeOptimizer& make,
            const DataParallelOptions& options)
        : net(false, dropout),
          optimizer(make(net)),
          parallel(parallel::StrategyContext{.world = rank.world.get()}, net, *optimizer, options) {
    }
    void run(int from, int to) {
      for (int step = from; step < to; ++step) {
        mean_loss(net, step, 1).backward();
        parallel.step();
      }
    }
    Net net;
    std::unique_ptr<torch::optim::Optimizer> optimizer;
    DataParallel parallel;
  };
  at::manual_seed(5);
  Program straight(rank, dropout, make, options);
  straight.run(0, 3);
  std::map<std::string, at::Tensor> saved;
  std::set<std::string> names;
  for (const NamedShard& shard : straight.parallel.state()) {
    saved[shard.name] = shard.local.clone();
    names.insert(shard.name);
  }
  const std::string metadata = straight.parallel.metadata();
  straight.run(3, 5);
  const std::string expected = straight.parallel.weights_hash();

  at::manual_seed(99);
  Program resumed(rank, dropout, make, options);
  for (const NamedShard& shard : resumed.parallel.state()) shard.local.copy_(saved.at(shard.name));
  resumed.parallel.restored(metadata);
  resumed.run(3, 5);
  EXPECT_EQ(resumed.parallel.weights_hash(), expected);
  return names;
}

TEST(DataParallel, ResumesFromItsStateWithEqualBits) {
  testing::run_ranks(2, [&](testing::RankContext& rank) {
    const auto names = expect_equal_bits_after_a_resume(rank, 0.5, [](Net& net) {
      return std::make_unique<torch::optim::AdamW>(net.parameters(),
                                                   torch::optim::AdamWOptions(1e-2).amsgrad(true));
    });
    EXPECT_TRUE(names.contains("optimizer/first.weight.max_exp_avg_sq"));
  });
}

TEST(DataParallel, CompressedTrainingResumesWithEqualBits) {
  for (const char* compression :
       {"topk:0.2", "randomk:0.2", "onebit", "powersgd:1,0", "powersgd:1,4"}) {
    SCOPED_TRACE(compression);
    testing::run_ranks(2, [&](testing::RankContext& rank) {
      const auto names =
          expect_equal_bits_after_a_resume(rank, 0,
                                           [](Net& net) {
                                             return std::make_unique<torch::optim::Adam>(
                                                 net.parameters(), torch::optim::AdamOptions(1e-2));
                                           },
                                           {.compression = compression});
      EXPECT_TRUE(names.contains("compression/residual/first.weight"));
    });
  }
}

// Gradients of the first layer are there, and nothing updates it: the second layer's updates count.
TEST(DataParallel, AnOptimizerOfTheLastLayerAloneGoesOn) {
  testing::run_ranks(1, [&](testing::RankContext& rank) {
    expect_equal_bits_after_a_resume(rank, 0, [](Net& net) {
      return std::make_unique<torch::optim::Adam>(net.second->parameters(),
                                                  torch::optim::AdamOptions(1e-2));
    });
  });
}

struct OwnState : torch::optim::OptimizerCloneableParamState<OwnState> {};

// Has LibTorch's type, and a state of its own.
class OwnSgd final : public torch::optim::SGD {
 public:
  using SGD::SGD;
  at::Tensor step(LossClosure /*closure*/ = nullptr) override {
    for (const at::Tensor& parameter : param_groups()[0].params()) {
      if (!parameter.grad().defined()) continue;
      auto& slot = state()[parameter.unsafeGetTensorImpl()];
      if (!slot) slot = std::make_unique<OwnState>();
      EXPECT_NE(dynamic_cast<OwnState*>(slot.get()), nullptr);
      at::Tensor(parameter).data().sub_(parameter.grad(), 0.1);
    }
    return {};
  }
};

TEST(DataParallel, ADerivedOptimizerMakesAStateOfItsOwnTypeAfterALoad) {
  testing::run_ranks(1, [](testing::RankContext& rank) {
    std::string metadata;
    for (const bool resumes : {false, true}) {
      Net net;
      OwnSgd sgd(net.parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
      DataParallel parallel({.world = rank.world.get()}, net, sgd);
      for (const NamedShard& shard : parallel.state())
        EXPECT_EQ(shard.optional, shard.name.starts_with("optimizer/")) << shard.name;
      if (resumes) parallel.restored(metadata);
      mean_loss(net, 0, 1).backward();
      EXPECT_TRUE(parallel.step());
      for (const NamedShard& shard : parallel.state())
        EXPECT_EQ(shard.name.find("optimizer/first"), std::string::npos) << "is not LibTorch's";
      metadata = parallel.metadata();
    }
  });
}

// Such as one that logs.
class DerivedAdam final : public torch::optim::Adam {
 public:
  using Adam::Adam;
  at::Tensor step(LossClosure closure = nullptr) override { return Adam::step(closure); }
};

TEST(DataParallel, ADerivedOptimizerWithTheStateOfLibTorchsGoesOn) {
  testing::run_ranks(2, [](testing::RankContext& rank) {
    const auto names = expect_equal_bits_after_a_resume(rank, 0.5, [](Net& net) {
      return std::make_unique<DerivedAdam>(net.parameters(), torch::optim::AdamOptions(1e-2));
    });
    EXPECT_TRUE(names.contains("optimizer/first.weight.exp_avg"));
  });
}

struct Strided : torch::nn::Module {
  Strided() {
    conv = register_module("conv", torch::nn::Conv2d(3, 4, 3));
    conv->weight.set_data(conv->weight.contiguous(at::MemoryFormat::ChannelsLast));
    scale = register_buffer("scale", at::ones({1}).expand({4}));
  }
  void run(DataParallel& parallel, double input) {
    const at::Tensor scaled = conv(at::full({2, 3, 5, 5}, input)) * scale.view({4, 1, 1});
    parallel.backward(scaled.pow(2).mean());
    EXPECT_TRUE(parallel.step());
  }
  torch::nn::Conv2d conv{nullptr};
  at::Tensor scale;
};

TEST(DataParallel, WeightsThatAreNotContiguousAreSavedAndResumed) {
  for (const char* sync : {"plain", "zero1"}) {
    testing::run_ranks(2, [&](testing::RankContext& rank) {
      at::manual_seed(5);
      Strided net, again;
      torch::optim::Adam adam(net.parameters(), 1e-2), second(again.parameters(), 1e-2);
      DataParallel parallel({.world = rank.world.get()}, net, adam, {.sync = sync});
      net.run(parallel, 1 + rank.rank);
      std::map<std::string, at::Tensor> saved;
      for (const NamedShard& shard : parallel.state()) {
        EXPECT_TRUE(shard.local.is_contiguous()) << shard.name;
        saved[shard.name] = shard.local.clone();
      }
      EXPECT_TRUE(saved.at("conv.weight").equal(net.conv->weight));
      const std::string metadata = parallel.metadata();
      net.run(parallel, 2);
      const std::string expected = parallel.weights_hash();

      DataParallel resumed({.world = rank.world.get()}, again, second, {.sync = sync});
      for (const NamedShard& shard : resumed.state()) {
        const at::Tensor& value = saved.at(shard.name);
        shard.load ? shard.load(value) : void(at::Tensor(shard.local).copy_(value));
      }
      resumed.restored(metadata);
      again.run(resumed, 2);
      EXPECT_EQ(resumed.weights_hash(), expected) << sync;
    });
  }
}

TEST(DataParallel, MarksWeightsThatAreNotTrained) {
  testing::run_ranks(1, [&](testing::RankContext& rank) {
    Net net;
    net.first->weight.requires_grad_(false);
    torch::optim::SGD sgd(net.parameters(), torch::optim::SGDOptions(0.1));
    DataParallel parallel(parallel::StrategyContext{.world = rank.world.get()}, net, sgd);
    std::vector<std::string> frozen;
    for (const NamedShard& shard : parallel.state())
      if (shard.frozen) frozen.push_back(shard.name);
    EXPECT_EQ(frozen, std::vector<std::string>{"first.weight"});
  });
}

}  // namespace
}  // namespace trireme::data_parallel_test
