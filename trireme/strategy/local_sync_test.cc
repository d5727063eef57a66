// Simulated ranks that each train their own copy of a perceptron (parallel.sync = local_sgd, diloco,
// easgd, gossip): what they learn, refusals, checkpoints and traffic.
#include <ATen/Functions.h>
#include <gtest/gtest.h>
#include <torch/nn/module.h>

#include <functional>
#include <map>
#include <mutex>
#include <numeric>

#include "trireme/base/error.h"
#include "trireme/comm/simulate.h"
#include "trireme/kernel/assignment.h"
#include "trireme/models/models.h"
#include "trireme/models/module_block.h"
#include "trireme/optim/optimizer.h"
#include "trireme/strategy/strategy.h"
#include "trireme/sync/strategy_context.h"
#include "trireme/tensor/convert.h"
#include "trireme/tensor/random.h"
#include "trireme/testing/counting_transport.h"
#include "trireme/testing/run_ranks.h"

namespace trireme::local_sync_test {
namespace {

const std::vector<std::string>& relatives() {
  static const std::vector<std::string> all = {"local_sgd", "diloco", "easgd", "gossip"};
  return all;
}

constexpr std::int64_t kIn = 6, kOut = 3, kSamples = 2;

at::Tensor noise(const std::string& name, at::IntArrayRef shape) {
  at::Tensor values = at::empty(shape, at::kFloat);
  tensor::fill_uniform(values, 11, name, -1, 1);
  return values;
}

// Cycles through 64 micro-batches that are labelled by a fixed teacher.
MicroBatch micro_batch(std::int64_t step, std::uint32_t index) {
  const std::int64_t which = (step * 8 + index) % 64;
  const at::Tensor features = noise("sample " + std::to_string(which), {kSamples, kIn});
  return {.index = index,
          .count = kSamples,
          .fields = {{"features", features},
                     {"targets", at::tanh(features.matmul(noise("teacher", {kIn, kOut})))}}};
}

Batch batch_of(std::int64_t step, std::uint32_t total, const testing::RankContext& rank) {
  Batch batch{.total = total, .global_count = total * kSamples, .step = step};
  for (const std::uint32_t i : leaves_of(kernel::contiguous(rank.size), total, rank.rank))
    batch.micro.push_back(micro_batch(step, i));
  return batch;
}

at::Tensor squared_error(const models::Value& output, const MicroBatch& micro) {
  return (output.at(0) - micro.field("targets")).pow(2).sum();
}

models::Blocks perceptron(const std::string& precision, std::int64_t hidden = 20) {
  models::Blocks model;
  const at::ScalarType type = tensor::compute_type(precision);
  model.add_block(
      {.name = "cast",
       .make =
           [type] { return models::as_block([type](const at::Tensor& x) { return x.to(type); }); },
       .reads = {"features"}});
  const models::Blocks layers =
      models::make_mlp({.widths = {kIn, hidden, kOut}, .precision = precision, .input = "cast"});
  for (const models::BlockSpec& spec : layers.specs()) model.add_block(spec);
  return model;
}

using Make = std::function<std::unique_ptr<Strategy>(testing::RankContext& rank)>;

Make maker(const std::string& sync, const LocalOptions& local = {.steps = 4},
           const OptimizerOptions& optimizer = AdamW{.learning_rate = 1e-2},
           const std::string& precision = "fp32", double clip = 1) {
  return [=](testing::RankContext& rank) {
    return std::make_unique<Strategy>(parallel::StrategyContext{.world = rank.world.get()},
                                      perceptron(precision),
                                      StrategyOptions{.sync = sync,
                                                      .precision = precision,
                                                      .clip = clip,
                                                      .bucket_bytes = 512,
                                                      .local = local},
                                      optim::make_optimizer(optimizer));
  };
}

std::vector<float> output_of(Strategy& strategy) {
  const at::Tensor value = strategy.infer(micro_batch(0, 63)).at(0).to(at::kFloat).contiguous();
  return {value.data_ptr<float>(), value.data_ptr<float>() + value.numel()};
}

struct Outcome {
  std::string hash;
  std::vector<double> losses, norms;
  friend bool operator==(const Outcome&, const Outcome&) = default;
};

// Some batches are so short that ranks have no share.
std::uint32_t total_of(int step) { return step % 5 == 3 ? 2 : 8; }

void train(Strategy& strategy, const testing::RankContext& rank, int first, int last,
           Outcome* outcome = nullptr) {
  for (int step = first; step < last; ++step) {
    const StepResult result = strategy.step(batch_of(step, total_of(step), rank), squared_error);
    if (outcome == nullptr) continue;
    outcome->losses.push_back(result.loss);
    outcome->norms.push_back(result.gradient_norm.value_or(0));
  }
}

Outcome train_on(int ranks, int steps, const Make& make, std::uint64_t seed = 1) {
  std::vector<Outcome> outcomes(static_cast<std::size_t>(ranks));
  testing::run_ranks(ranks,
                     [&](testing::RankContext& rank) {
                       Outcome& outcome = outcomes[static_cast<std::size_t>(rank.rank)];
                       const auto strategy = make(rank);
                       train(*strategy, rank, 0, steps, &outcome);
                       outcome.hash = strategy->weights_hash();
                     },
                     {.seed = seed});
  for (const Outcome& outcome : outcomes) EXPECT_EQ(outcome, outcomes[0]);
  return outcomes[0];
}

double mean_of_last(const std::vector<double>& values, std::size_t count) {
  double sum = 0;
  for (std::size_t i = values.size() - count; i < values.size(); ++i) sum += values[i];
  return sum / static_cast<double>(count);
}

TEST(Relatives, LearnAboutAsWellAsPlain) {
  const Outcome plain = train_on(4, 200, maker("plain"));
  const double first = plain.losses.front(), last = mean_of_last(plain.losses, 8);
  EXPECT_LT(last, first / 20);
  for (const std::string& sync : relatives()) {
    // DiLoCo's outer momentum multiplies the inner steps by up to 0.7 / (1 - 0.9) = 7, and needs
    // some of the 50 rounds to reach that.
    const bool outer = sync == "diloco";
    const AdamW adamw{.learning_rate = outer ? 3e-3 : 1e-2};
    const Outcome outcome = train_on(4, 200, maker(sync, {.steps = 4}, adamw));
    EXPECT_LT(mean_of_last(outcome.losses, 8), (outer ? 4 : 2) * last) << sync;
  }
}

TEST(Relatives, RepeatBitForBitWhateverTheNetworkDoes) {
  for (const std::string& sync : relatives()) {
    for (const int ranks : {2, 3, 5}) {
      const Outcome one = train_on(ranks, 6, maker(sync, {.steps = 2}));
      for (std::uint64_t seed = 2; seed < 6; ++seed)
        EXPECT_EQ(train_on(ranks, 6, maker(sync, {.steps = 2}), seed), one)
            << sync << ", seed " << seed;
    }
  }
}

TEST(Relatives, LearnInBf16WithMastersOfTheirOwn) {
  for (const std::string& sync : relatives()) {
    const Outcome outcome =
        train_on(3, 60, maker(sync, {.steps = 4}, AdamW{.learning_rate = 1e-2}, "bf16"));
    EXPECT_LT(mean_of_last(outcome.losses, 8), outcome.losses.front() / 5) << sync;
  }
}

// Moments and bf16's master weights must move into the file before their addresses are used.
TEST(Relatives, StateInAMappedFileChangesNoBit) {
  for (const std::string& sync : relatives()) {
    const auto hash_in = [&](const std::string& folder) {
      const Outcome outcome = train_on(2, 5, [&](testing::RankContext& rank) {
        return std::make_unique<Strategy>(
            parallel::StrategyContext{.world = rank.world.get()}, perceptron("bf16"),
            StrategyOptions{
                .sync = sync, .precision = "bf16", .offload = folder, .local = {.steps = 2}},
            optim::make_optimizer(AdamW{.learning_rate = 1e-2}));
      });
      return outcome.hash;
    };
    EXPECT_EQ(hash_in(::testing::TempDir()), hash_in("")) << sync;
  }
}

// With momentum, weight decay and uneven shares the step is still linear in the gradient, so the
// mean of the ranks' steps is the step of the mean gradient.
TEST(LocalSgd, WithOneLocalStepIsPlainUnderSgd) {
  const Sgd sgd{.learning_rate = 0.05, .momentum = 0.9, .weight_decay = 0.01};
  for (const int ranks : {1, 2, 3, 4}) {
    const Outcome plain = train_on(ranks, 20, maker("plain", {}, sgd, "fp64", 0));
    const Outcome local = train_on(ranks, 20, maker("local_sgd", {.steps = 1}, sgd, "fp64", 0));
    ASSERT_EQ(local.losses.size(), plain.losses.size());
    for (std::size_t i = 0; i < plain.losses.size(); ++i)
      EXPECT_NEAR(local.losses[i], plain.losses[i], 1e-12 * plain.losses[0]) << ranks << " ranks";
  }
}

// A buffer of any strides, to which training adds the rank.
struct Counts : torch::nn::Module {
  explicit Counts(int own) : rank(own) {
    w = register_parameter("w", at::full({1}, 3.0, at::kDouble));
    counts = register_buffer("counts", at::zeros({8, 4}, at::kDouble).t());
  }
  at::Tensor forward(const at::Tensor& a) {
    if (is_training()) counts.add_(rank);
    return at::mul(w, at::ones_like(a));
  }
  const int rank;
  at::Tensor w, counts;
};

TEST(Relatives, AverageBuffersOfAnyStrides) {
  for (const std::string& sync : relatives()) {
    testing::run_ranks(3, [&](testing::RankContext& rank) {
      models::Blocks model;
      model.add("block", {"a"}, [&] { return std::make_shared<Counts>(rank.rank); });
      Strategy strategy(parallel::StrategyContext{.world = rank.world.get()}, model,
                        {.sync = sync, .precision = "fp64", .local = {.steps = 1}},
                        optim::make_optimizer(Sgd{}));
      const MicroBatch micro{.index = static_cast<std::uint32_t>(rank.rank),
                             .count = 1,
                             .fields = {{"a", at::ones({1}, at::kDouble)}}};
      const Batch batch{.micro = {micro}, .total = 3, .global_count = 3};
      const Loss loss = [](const models::Value& output, const MicroBatch&) {
        return output.at(0).sum();
      };
      strategy.step(batch, loss);
      strategy.evaluate({batch}, loss);
      for (const NamedShard& shard : strategy.state())
        if (shard.name == "block.counts") {
          EXPECT_TRUE(at::equal(shard.local, at::ones({4, 8}, at::kDouble))) << sync;
        }
    });
  }
}

TEST(Relatives, AreLocalBetweenTheExchangesOnly) {
  testing::run_ranks(3, [&](testing::RankContext& rank) {
    const auto strategy = maker("local_sgd", {.steps = 3})(rank);
    for (int step = 0; step < 9; ++step) {
      train(*strategy, rank, step, step + 1);
      const std::vector<float> mine = output_of(*strategy);
      std::vector<float> all(mine.size() * 3);
      rank.world->all_gather(Buffer::of(std::span(mine)), Buffer::of(std::span(all))).wait();
      const bool equal = std::equal(mine.begin(), mine.end(), all.begin()) &&
                         std::equal(mine.begin(), mine.end(), all.begin() + 6) &&
                         std::equal(mine.begin(), mine.end(), all.begin() + 12);
      EXPECT_EQ(equal, step % 3 == 2) << "after step " << step;
    }
  });
}

TEST(Relatives, StartSynchronouslyWhereAskedTo) {
  for (const std::string& sync : relatives()) {
    const Outcome plain = train_on(3, 7, maker("plain"));
    EXPECT_EQ(train_on(3, 7, maker(sync, {.steps = 2, .post_local_after = 7})), plain) << sync;
    const Outcome later = train_on(3, 7, maker(sync, {.steps = 2, .post_local_after = 4}));
    for (std::size_t step = 0; step < 5; ++step)  // the fifth loss uses the fourth update's weights
      EXPECT_EQ(later.losses[step], plain.losses[step]) << sync;
    EXPECT_NE(later.hash, plain.hash) << sync;
  }
}

TEST(Relatives, LookingAtThemChangesNothing) {
  for (const std::string& sync : relatives()) {
    for (const std::string precision : {"fp32", "bf16", "fp16"}) {
      const auto train_looking = [&](bool looks) {
        std::vector<std::string> hashes(3);
        std::vector<double> validations(3);
        testing::run_ranks(3, [&](testing::RankContext& rank) {
          const auto own = static_cast<std::size_t>(rank.rank);
          const auto strategy =
              maker(sync, {.steps = 4}, AdamW{.learning_rate = 1e-2}, precision)(rank);
          for (int step = 0; step < 10; ++step) {
            train(*strategy, rank, step, step + 1);
            if (!looks) continue;
            const std::vector<float> before = output_of(*strategy);
            validations[own] = strategy->evaluate({batch_of(100, 8, rank)}, squared_error);
            strategy->weights_hash();
            EXPECT_EQ(output_of(*strategy), before);
          }
          hashes[own] = strategy->weights_hash();
        });
        EXPECT_EQ(validations[1], validations[0]);
        EXPECT_EQ(validations[2], validations[0]);
        EXPECT_EQ(hashes[1], hashes[0]);
        return hashes[0];
      };
      EXPECT_EQ(train_looking(true), train_looking(false)) << sync << ", " << precision;
    }
  }
}

TEST(Relatives, AStepIsRefusedByAllOrByNone) {
  for (const std::string& sync : relatives()) {
    testing::run_ranks(3, [&](testing::RankContext& rank) {
      const auto strategy = maker(sync)(rank);
      train(*strategy, rank, 0, 2);
      const std::vector<float> before = output_of(*strategy);
      const Loss broken = [&](const models::Value& output, const MicroBatch& micro) {
        const at::Tensor sum = squared_error(output, micro);
        return micro.index == 7 ? sum * std::nan("") : sum;
      };
      try {
        strategy->step(batch_of(2, 8, rank), broken);
        ADD_FAILURE() << "the step was applied";
      } catch (const StepRefused& error) {
        EXPECT_EQ(error.peer(), 2);
        EXPECT_NE(std::string(error.what()).find("micro-batch 7"), std::string::npos)
            << error.what();
      }
      EXPECT_EQ(output_of(*strategy), before) << sync;
      train(*strategy, rank, 3, 6);
      EXPECT_NE(output_of(*strategy), before) << sync;
    });
  }
}

struct Saved {
  std::map<std::string, at::Tensor> tensors;
  std::string metadata;
};

Saved save(Strategy& strategy) {
  Saved saved;
  for (const NamedShard& shard : strategy.state()) saved.tensors[shard.name] = shard.local.clone();
  saved.metadata = strategy.metadata();
  return saved;
}

void load(Strategy& strategy, const Saved& saved) {
  const auto shards = strategy.state();
  EXPECT_EQ(shards.size(), saved.tensors.size());
  for (const NamedShard& shard : shards) shard.local.copy_(saved.tensors.at(shard.name));
  strategy.restored(saved.metadata);
}

// Saves in the middle of a round: the checkpoint makes the ranks' weights equal, so a resumed run
// has the same bits as one that went on. Another number of ranks can resume, too.
TEST(Relatives, ResumeFromACheckpointOnAnyNumberOfRanks) {
  for (const std::string& sync : relatives()) {
    for (const std::string precision : {"fp32", "bf16", "fp16"}) {
      const Make make =
          maker(sync, {.steps = 4, .post_local_after = 1}, AdamW{.learning_rate = 1e-2}, precision);
      Saved saved;
      std::string straight;
      double loss = 0;
      std::mutex mutex;
      testing::run_ranks(3, [&](testing::RankContext& rank) {
        const auto strategy = make(rank);
        train(*strategy, rank, 0, 7);
        const Saved mine = save(*strategy);
        {
          const std::lock_guard lock(mutex);
          for (const auto& [name, tensor] : saved.tensors)
            EXPECT_TRUE(at::equal(tensor, mine.tensors.at(name))) << name << " differs by rank";
          saved = mine;
        }
        Outcome outcome;
        train(*strategy, rank, 7, 13, &outcome);
        const std::string hash = strategy->weights_hash();
        const std::lock_guard lock(mutex);
        straight = hash;
        loss = outcome.losses.back();
      });
      for (const int ranks : {3, 2, 5}) {
        testing::run_ranks(ranks, [&](testing::RankContext& rank) {
          const auto strategy = make(rank);
          load(*strategy, saved);
          Outcome outcome;
          train(*strategy, rank, 7, 13, &outcome);
          const std::string hash = strategy->weights_hash();
          if (ranks == 3) {
            EXPECT_EQ(hash, straight) << sync;
          }
          EXPECT_NEAR(outcome.losses.back(), loss, 0.3 * loss) << sync << ", " << ranks;
        });
      }
    }
  }
}

// Between two exchanges a rank sends the entry barrier, the vote and the loss, but no gradients. In
// a gossip exchange it sends the weights to this round's neighbour only.
TEST(Relatives, SendWeightsInAnExchangeAndNothingElse) {
  for (const std::string& sync : relatives()) {
    std::vector<std::vector<std::size_t>> sent(4, std::vector<std::size_t>(4));  // [from][to] bytes
    comm::SimulationOptions simulation;
    simulation.prepare = [&](comm::SimulatedRank& rank, comm::CommunicatorOptions&) {
      rank.transport = std::make_shared<testing::CountingTransport>(
          rank.transport, sent[static_cast<std::size_t>(rank.rank)]);
    };
    comm::simulate(4, simulation, [&](comm::SimulatedRank& rank) {
      std::vector<std::size_t>& mine = sent[static_cast<std::size_t>(rank.rank)];
      Strategy strategy(parallel::StrategyContext{.world = rank.world.get()},
                        perceptron("fp32", 5000), {.sync = sync, .local = {.steps = 3}},
                        optim::make_optimizer(Sgd{}));
      const auto weights = static_cast<std::size_t>(strategy.num_parameters()) * sizeof(float);
      for (int step = 0; step < 6; ++step) {
        std::fill(mine.begin(), mine.end(), 0u);
        train(strategy, rank, step, step + 1);
        const bool exchange = step % 3 == 2;
        const int neighbour = (rank.rank + (step == 2 ? 1 : 2)) % 4;  // of the graph one_peer
        for (int peer = 0; peer < 4; ++peer) {
          const std::size_t bytes = mine[static_cast<std::size_t>(peer)];
          const bool hears = exchange && (sync != "gossip" || peer == neighbour);
          EXPECT_TRUE(hears || bytes < 5000) << sync << ", step " << step << ": " << bytes;
          EXPECT_TRUE(!hears || sync != "gossip" || bytes >= weights) << step << ": " << bytes;
        }
        const std::size_t all = std::accumulate(mine.begin(), mine.end(), std::size_t{0});
        EXPECT_EQ(all >= weights, exchange) << sync << ", step " << step << ": " << all;
      }
    });
  }
}

TEST(Relatives, RefuseWhatTheyCannotDo) {
  testing::run_ranks(1, [&](testing::RankContext& rank) {
    const auto make = [&](StrategyOptions options) {
      Strategy strategy(parallel::StrategyContext{.world = rank.world.get()},
                        models::make_mlp({.widths = {kIn, kOut}}), options,
                        optim::make_optimizer(Sgd{}));
    };
    for (const std::string& sync : relatives()) {
      EXPECT_THROW(make({.sync = sync, .compression = "bf16"}), ConfigError);
      EXPECT_THROW(make({.sync = sync, .shard = 2}), ConfigError);
      EXPECT_THROW(make({.sync = sync, .local = {.steps = 0}}), ConfigError);
      EXPECT_THROW(make({.sync = sync, .local = {.post_local_after = -1}}), ConfigError);
      EXPECT_THROW(make({.sync = sync, .local = {.outer_rate = 0}}), ConfigError);
      EXPECT_THROW(make({.sync = sync, .local = {.outer_momentum = 1}}), ConfigError);
      EXPECT_THROW(make({.sync = sync, .local = {.elastic = 1.5}}), ConfigError);
      parallel::StrategyContext elastic{.world = rank.world.get()};
      elastic.servers.elastic = true;
      EXPECT_THROW(Strategy(elastic, models::make_mlp({.widths = {kIn, kOut}}), {.sync = sync},
                            optim::make_optimizer(Sgd{})),
                   ConfigError);
    }
    EXPECT_THROW(make({.sync = "gossip", .local = {.graph = "star"}}), ConfigError);
  });
}

}  // namespace
}  // namespace trireme::local_sync_test
