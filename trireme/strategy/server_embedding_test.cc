// Embeddings whose rows are on parameter servers, on the simulated network.
#include <ATen/Functions.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/adamw.h>

#include <map>

#include "trireme/base/error.h"
#include "trireme/models/module_block.h"
#include "trireme/models/recommender.h"
#include "trireme/models/server_embedding.h"
#include "trireme/ps/rows/served_table.h"
#include "trireme/strategy/data_parallel.h"
#include "trireme/strategy/server_training_test.h"
#include "trireme/strategy/strategy.h"
#include "trireme/tensor/random.h"
#include "trireme/testing/run_ranks.h"

namespace trireme::server_embedding_test {
namespace {

using ::testing::HasSubstr;
using testing::run_with_servers;

constexpr std::int64_t kColumns = 3, kRows = 40, kWidth = 4, kSamples = 2;

const models::RecommenderConfig kModel{
    .numbers = 2, .categories = kColumns, .width = kWidth, .bottom = {6}, .top = {6}, .bound = 0.5};

at::Tensor drawn(at::IntArrayRef sizes, const std::string& name, double low, double high) {
  at::Tensor values = at::empty(sizes, at::kFloat);
  tensor::fill_uniform(values, 7, name, low, high);
  return values;
}

MicroBatch micro_batch(std::int64_t step, std::uint32_t index) {
  const std::string name = std::to_string(step) + "/" + std::to_string(index);
  // Small numbers come often, so that rows repeat within a micro-batch and among workers.
  const at::Tensor u = drawn({kSamples, kColumns}, name + "c", 0, 1);
  const at::Tensor ids = (u * u * (kRows - 1)).to(at::kLong);
  const at::Tensor numbers = drawn({kSamples, 2}, name + "n", -1, 1);
  return {.index = index,
          .first_sample = kSamples * index,
          .count = kSamples,
          .fields = {{"categories", ids},
                     {"numbers", numbers},
                     {"targets", at::gt(ids.sum(1), 30).to(at::kLong)}}};
}

Loss click_loss() {
  return [](const models::Value& output, const MicroBatch& micro) {
    const at::Tensor logits = output.at(0).to(at::kFloat).flatten();
    return at::sum(at::softplus(logits) - logits * micro.field("targets"));
  };
}

Batch batch_of(std::int64_t step, std::uint32_t total, int rank,
               const kernel::Assignment& assignment) {
  Batch batch{.total = total, .global_count = total * kSamples, .step = step};
  for (const std::uint32_t i : leaves_of(assignment, total, rank))
    batch.micro.push_back(micro_batch(step, i));
  return batch;
}

using Tensors = std::map<std::string, at::Tensor>;

Tensors saved_by(Strategy& strategy) {
  Tensors saved;
  for (const NamedShard& shard : strategy.state())
    saved[shard.name] = shard.local.clone().view(shard.shape);
  return saved;
}

void load(Strategy& strategy, const Tensors& saved, const std::string& metadata) {
  for (const NamedShard& shard : strategy.state()) {
    const at::Tensor& from = saved.at(shard.name);
    if (shard.load)
      shard.load(from);
    else
      shard.local.flatten().copy_(from.flatten());
  }
  strategy.restored(metadata);
}

struct Outcome {
  std::string hash;
  std::vector<double> losses, norms;
  friend bool operator==(const Outcome&, const Outcome&) = default;
};

// A worker's Strategy and its share of batches.
struct Trained {
  Trained(const parallel::StrategyContext& context, int own_rank, const models::Blocks& model,
          const StrategyOptions& options, const OptimizerOptions& optimizer)
      : rank(own_rank), strategy(with_assignment(context), model, options, optimizer) {}
  parallel::StrategyContext with_assignment(parallel::StrategyContext env) {
    env.assign = [this](const kernel::Assignment& dealt) { assignment = dealt; };
    return env;
  }
  void steps(int first, int end) {
    for (int step = first; step < end; ++step) {
      const std::uint32_t total = step % 3 == 2 ? 5 : 9;  // a short batch now and then
      const StepResult result =
          strategy.step(batch_of(step, total, rank, assignment), click_loss());
      losses.push_back(result.loss);
      norms.push_back(result.gradient_norm.value_or(0));
    }
  }
  double validate() {
    return strategy.evaluate({batch_of(1000, 4, rank, assignment)}, click_loss());
  }
  Outcome outcome() { return {strategy.weights_hash(), losses, norms}; }

  const int rank;
  kernel::Assignment assignment;
  std::vector<double> losses, norms;
  Strategy strategy;
};

const StrategyOptions kServed{.sync = "server", .clip = 0.5};

TEST(ServerEmbeddingTraining, HasTheSameBitsOnAnyNumberOfWorkersAndServers) {
  const OptimizerOptions optimizers[] = {
      AdamW{.learning_rate = 1e-2}, Sgd{.learning_rate = 0.1, .momentum = 0.9}, Adagrad{}, Ftrl{}};
  for (const auto& model : {models::make_dlrm(kModel), models::make_wide_and_deep(kModel)}) {
    for (const OptimizerOptions& optimizer : optimizers) {
      Outcome first;
      for (const auto& [workers, servers] : {std::pair{1, 1}, {1, 2}, {2, 1}, {3, 2}, {4, 3}})
        run_with_servers(
            workers, servers,
            [&](int worker, const parallel::StrategyContext& env) {
              Trained trained(env, worker, model, kServed, optimizer);
              trained.steps(0, 6);
              const Outcome outcome = trained.outcome();
              if (workers == 1 && servers == 1) first = outcome;
              EXPECT_EQ(outcome, first) << workers << " workers, " << servers << " servers";
            },
            static_cast<std::uint64_t>(workers));
    }
  }
}

// The same model with a dense table, of which an optimizer without momentum changes no other rows.
models::Blocks dense_dlrm() {
  models::Blocks served = models::make_dlrm(kModel), dense;
  const ps::ServedTable table{.name = "embeddings", .width = kWidth, .bound = kModel.bound};
  for (models::BlockSpec spec : served.specs()) {
    if (spec.name == "embeddings")
      spec.make = [table] {
        struct Dense : torch::nn::Module {
          at::Tensor rows;
          explicit Dense(const ps::ServedTable& own) {
            at::Tensor all = at::empty({kRows, kWidth}, at::kFloat);
            for (std::int64_t id = 0; id < kRows; ++id)
              ps::InitialRows(own).fill(id, all.mutable_data_ptr<float>() + id * kWidth);
            rows = register_parameter("rows", all);
          }
          at::Tensor forward(const at::Tensor& ids) { return at::embedding(rows, ids); }
        };
        return models::as_block(std::make_shared<Dense>(table));
      };
    dense.add_block(spec);
  }
  return dense;
}

TEST(ServerEmbeddingTraining, HasTheBitsOfADenseTable) {
  for (const OptimizerOptions& optimizer :
       {OptimizerOptions(Sgd{.learning_rate = 0.1}), OptimizerOptions(Adagrad{})}) {
    Tensors dense;
    std::vector<double> losses, norms;
    testing::run_ranks(1, [&](testing::RankContext& rank) {  // a clip that only makes it measure
      Trained trained({.world = rank.world.get()}, 0, dense_dlrm(), {.clip = 1e6}, optimizer);
      trained.steps(0, 8);
      dense = saved_by(trained.strategy);
      losses = trained.losses;
      norms = trained.norms;
    });
    run_with_servers(2, 2, [&](int worker, const parallel::StrategyContext& env) {
      Trained trained(env, worker, models::make_dlrm(kModel), {.sync = "server", .clip = 1e6},
                      optimizer);
      trained.steps(0, 8);
      EXPECT_EQ(trained.losses, losses);
      for (std::size_t step = 0; step < norms.size(); ++step)
        EXPECT_NEAR(trained.norms[step] / norms[step], 1, 1e-12);
      const Tensors served = saved_by(trained.strategy);
      if (worker != 0) return;  // worker 0's checkpoint has the rows
      EXPECT_TRUE(served.at("top.0.linear.weight").equal(dense.at("top.0.linear.weight")));
      const at::Tensor ids = served.at("embeddings.ids");
      EXPECT_GT(ids.numel(), kRows / 2);
      EXPECT_TRUE(
          served.at("embeddings.rows").equal(dense.at("embeddings.rows").index_select(0, ids)));
    });
  }
}

TEST(ServerEmbeddingTraining, WorkersOnTheirOwnLearn) {
  for (const ServerOptions& server : {ServerOptions{.staleness = -1},
                                      {.staleness = 2},
                                      {.backup = 1},
                                      {.staleness = -1, .compensation = 0.04}})
    for (const std::uint64_t seed : {1u, 2u})
      run_with_servers(
          3, 2,
          [&](int worker, const parallel::StrategyContext& env) {
            Trained trained(env, worker, models::make_dlrm(kModel),
                            {.sync = "server", .clip = 5, .server = server},
                            AdamW{.learning_rate = 2e-2});
            const double before = trained.validate();
            trained.steps(0, 40);
            EXPECT_LT(trained.validate(), before - 0.05);
          },
          seed);
}

TEST(ServerEmbeddingTraining, ACheckpointGoesOnWithOtherNumbersAndIsEvaluatedWithoutServers) {
  const AdamW adam{.learning_rate = 1e-2};
  const models::Blocks model = models::make_dlrm(kModel);
  Outcome whole;
  double validation = 0;
  run_with_servers(1, 1, [&](int worker, const parallel::StrategyContext& env) {
    Trained trained(env, worker, model, kServed, adam);
    trained.steps(0, 6);
    whole = trained.outcome();
    validation = trained.validate();
  });
  Tensors saved, end;
  std::string metadata, end_metadata;
  run_with_servers(2, 3, [&](int worker, const parallel::StrategyContext& env) {
    Trained trained(env, worker, model, kServed, adam);
    trained.steps(0, 3);
    trained.validate();
    const Tensors own = saved_by(trained.strategy);
    if (worker != 0) return;
    saved = own;
    metadata = trained.strategy.metadata();
  });
  for (const auto& [workers, servers] : {std::pair{1, 1}, {3, 2}})
    run_with_servers(workers, servers, [&](int worker, const parallel::StrategyContext& env) {
      Trained trained(env, worker, model, kServed, adam);
      load(trained.strategy, saved, metadata);
      trained.steps(3, 6);
      EXPECT_EQ(trained.strategy.weights_hash(), whole.hash);
      if (worker == 0 && workers == 1) {
        end = saved_by(trained.strategy);
        end_metadata = trained.strategy.metadata();
      }
    });
  testing::run_ranks(1, [&](testing::RankContext& rank) {
    Trained trained({.world = rank.world.get()}, 0, model, {}, adam);
    EXPECT_NE(trained.validate(), validation);
    load(trained.strategy, end, end_metadata);
    EXPECT_EQ(trained.validate(), validation);
    EXPECT_EQ(trained.strategy.weights_hash(), whole.hash);
    EXPECT_THROW(trained.steps(6, 7), StepRefused);  // no servers to train the rows
  });
}

TEST(ServerEmbeddingTraining, ValidationCreatesNoRows) {
  run_with_servers(1, 2, [&](int worker, const parallel::StrategyContext& env) {
    Trained trained(env, worker, models::make_dlrm(kModel), kServed, Adagrad{});
    trained.validate();
    EXPECT_EQ(saved_by(trained.strategy).at("embeddings.ids").numel(), 0);
  });
}

TEST(ServerEmbeddingTraining, AGradientThatIsNotFiniteRefusesTheStepAndNamesTheRow) {
  run_with_servers(2, 2, [&](int worker, const parallel::StrategyContext& env) {
    models::Blocks model;
    model.add("items", {"categories"},
              [] { return ServerEmbedding({.name = "items", .width = kWidth}); });
    model.add("head", {"numbers"}, [] { return torch::nn::Linear(2, 1); });
    model.add("sum", {"items", "head"}, [] {
      return [](const at::Tensor& rows, const at::Tensor& y) {
        return y + at::sqrt(0 * at::sum(rows, {1, 2})).unsqueeze(1);  // 0, and its gradient is NaN
      };
    });
    Trained trained(env, worker, model, kServed, Sgd{});
    const std::string before = trained.strategy.weights_hash();
    try {
      trained.strategy.step(batch_of(0, 4, worker, trained.assignment), click_loss());
      ADD_FAILURE() << "the step was not refused";
    } catch (const StepRefused& error) {
      EXPECT_THAT(error.what(), HasSubstr("the gradient of row "));
      EXPECT_THAT(error.what(), HasSubstr(" of items is not finite"));
    }
    EXPECT_EQ(trained.strategy.weights_hash(), before);
  });
}

struct Net : torch::nn::Module {
  std::shared_ptr<ServerEmbedding> items;
  torch::nn::Linear head = nullptr;
  explicit Net(const ServerEmbeddingOptions& options) {
    items = register_module("items", std::make_shared<ServerEmbedding>(options));
    head = register_module("head", torch::nn::Linear(kWidth, 1));
  }
  at::Tensor forward(const at::Tensor& ids) { return head->forward(items->forward(ids)); }
};

TEST(ServerEmbeddingTraining, DataParallelTrainsAModule) {
  std::vector<std::string> hashes;  // workers end in any order
  for (const int servers : {1, 3})
    run_with_servers(2, servers, [&](int worker, const parallel::StrategyContext& env) {
      Net net({.name = "items", .width = kWidth, .bag = Bag::Mean});
      {
        const at::NoGradGuard no_grad;
        for (at::Tensor& parameter : net.parameters()) parameter.fill_(0.5);
      }
      torch::optim::AdamW adam(net.parameters(), torch::optim::AdamWOptions(0.05));
      DataParallel parallel(env, net, adam, {.sync = "server"});
      double first = 0, last = 0;
      for (int step = 0; step < 30; ++step) {
        const MicroBatch micro = micro_batch(step % 4, static_cast<std::uint32_t>(worker));
        const at::Tensor wanted = micro.field("targets").to(at::kFloat).unsqueeze(1);
        const at::Tensor loss = at::mse_loss(net.forward(micro.field("categories")), wanted);
        last = loss.item<double>();
        if (step == 0) first = last;
        parallel.backward(loss);
        parallel.step();
      }
      EXPECT_LT(last, first);
      hashes.push_back(parallel.weights_hash());
    });
  ASSERT_EQ(hashes.size(), 4u);
  for (const std::string& hash : hashes) EXPECT_EQ(hash, hashes[0]);
}

TEST(ServerEmbeddingTraining, WhatCannotWorkIsRefusedWithAReason) {
  const auto refusal = [](const std::function<void(testing::RankContext&)>& body) {
    std::string text;
    testing::run_ranks(1, [&](testing::RankContext& rank) {
      try {
        body(rank);
      } catch (const Error& error) {
        text = error.what();
      }
    });
    return text;
  };
  EXPECT_THAT(refusal([](testing::RankContext&) {
                ServerEmbedding({.name = "items"}).forward(at::zeros({2}, at::kLong));
              }),
              HasSubstr("\"items\" is not connected"));
  EXPECT_THAT(refusal([](testing::RankContext&) { ServerEmbedding({.name = "a/b"}); }),
              HasSubstr("without a slash"));
  EXPECT_THAT(refusal([](testing::RankContext&) { ServerEmbedding({.name = "a", .width = 0}); }),
              HasSubstr("width"));
  EXPECT_THAT(refusal([](testing::RankContext& rank) {
                Net net({.name = "items", .width = kWidth});
                torch::optim::AdamW adam(net.parameters());
                DataParallel({.world = rank.world.get()}, net, adam);
              }),
              HasSubstr("trained by parameter servers"));
  EXPECT_THAT(refusal([](testing::RankContext& rank) {
                models::Blocks model;
                model.add("a", {"categories"}, [] { return ServerEmbedding({.name = "items"}); });
                model.add("b", {"categories"},
                          [] { return ServerEmbedding({.name = "items", .width = 3}); });
                model.add("head", [] { return torch::nn::Linear(3, 1); });
                Strategy({.world = rank.world.get()}, model, {}, Sgd{});
              }),
              HasSubstr("\"items\" differ"));
}

TEST(ServerEmbedding, ABagAddsRowsAndLeavesOutNegativeIds) {
  struct Rows final : models::RowSource {
    models::PulledRows pull(std::uint32_t, const at::Tensor& ids) override {
      return {at::arange(4),
              at::cat({at::arange(1, 5).view({4, 1}), at::zeros({1, 1})}).to(at::kFloat),
              at::where(at::lt(ids, 0), 4, ids)};
    }
    void push(std::uint32_t, const at::Tensor&, const at::Tensor& gradients) override {
      pushed = gradients;
    }
    at::Tensor pushed;
  };
  const at::Tensor ids = at::tensor({1, 3, -1, 0, 0, 0}, at::kLong).view({2, 3});
  const auto rows = std::make_shared<Rows>();
  for (const auto& [bag, expected, gradients] :
       {std::tuple{Bag::Sum, at::tensor({6.0f, 3.0f}), at::tensor({3.0f, 1.0f, 0.0f, 1.0f})},
        {Bag::Mean, at::tensor({3.0f, 1.0f}), at::tensor({1.0f, 0.5f, 0.0f, 0.5f})}}) {
    ServerEmbedding embedding({.name = "items", .width = 1, .bag = bag});
    embedding.connect(rows, 0);
    const at::Tensor out = embedding.forward(ids);
    EXPECT_TRUE(at::allclose(out.flatten(), expected)) << out;
    out.sum().backward();
    EXPECT_TRUE(at::allclose(rows->pushed.flatten(), gradients)) << rows->pushed;
  }
}

}  // namespace
}  // namespace trireme::server_embedding_test
